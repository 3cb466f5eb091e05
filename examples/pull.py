"""Pulling messages: you choose the queues, where to begin, and when to acknowledge."""

from flaremq.client.settings import namesrv_or_usual
from flaremq.client.sync import ConsumerSettings, LitePullConsumer, Message, Producer


def main(namesrv: str) -> int:
    with Producer("archive", namesrv) as producer:
        queue = producer.queues("Events")[0]
        producer.send_many([Message("Events", b"%d" % number) for number in range(100)], to=queue)

    with LitePullConsumer("reader", namesrv, settings=ConsumerSettings(auto_commit=False)) as consumer:
        consumer.assign([queue])
        end = consumer.end_offset(queue)
        consumer.seek(queue, end - 100)
        read = 0
        while read < 100:
            for message in consumer.poll(timeout_s=5, max_count=32):
                read += 1
                if read % 25 == 0:
                    print(f"{read}: {message.body.decode()} at {message.queue_offset}")
            consumer.commit()
        print(f"the group is at {consumer.committed(queue)} of {end}")
    return read


if __name__ == "__main__":
    main(namesrv_or_usual())
