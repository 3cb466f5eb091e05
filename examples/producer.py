"""Send a few orders, and print where they were stored."""

from flaremq.client.settings import namesrv_or_usual
from flaremq.client.sync import Message, Producer


def main(namesrv: str) -> int:
    with Producer(group="orders", namesrv=namesrv) as producer:
        for number in range(5):
            order = Message(
                "Orders", b"one book", tags="paid", keys=[f"o-{number}"], properties={"region": "eu"}
            )
            receipt = producer.send(order)
            print(f"o-{number} is {receipt.message_id} in {receipt.queue} at {receipt.queue_offset}")
    return 5


if __name__ == "__main__":
    main(namesrv_or_usual())
