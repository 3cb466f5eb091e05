"""Consume orders until Ctrl-C. Start it twice: the two share the queues."""

from flaremq.client.settings import namesrv_or_usual
from flaremq.client.sync import PushConsumer, ReceivedMessage


def make(namesrv: str) -> PushConsumer:
    consumer = PushConsumer(group="billing", namesrv=namesrv)

    @consumer.subscribe("Orders", tags="paid || refunded")
    def handle(message: ReceivedMessage) -> None:  # Return to acknowledge; raise to have it redelivered.
        print(message.keys, message.tags, message.body.decode())

    return consumer


if __name__ == "__main__":
    make(namesrv_or_usual()).run()
