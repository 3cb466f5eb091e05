"""Operating a cluster from a program: a topic, its messages, and the lag of a group."""

from flaremq.admin.sync import Admin
from flaremq.admin.values.topics import TopicSettings
from flaremq.client.settings import namesrv_or_usual
from flaremq.client.sync import LitePullConsumer, Message, Producer


def main(namesrv: str) -> int:
    with Admin(namesrv) as admin, Producer("operate", namesrv) as producer:
        made = admin.topics.create("Parcels", TopicSettings(read_queues=2, write_queues=2))
        print(f"Parcels is on {', '.join(made)}")
        producer.send_many([Message("Parcels", b"%d" % number, keys=[f"p-{number}"]) for number in range(20)])
        with LitePullConsumer("couriers", namesrv) as consumer:
            consumer.subscribe("Parcels")
            consumer.poll(timeout_s=10)
            consumer.commit()
        for message in admin.messages.by_key("Parcels", "p-7"):
            print(f"p-7 is in {message.queue} at {message.queue_offset}")
        progress = admin.groups.progress("couriers")
        print(f"couriers are {progress.lag} behind")
        return progress.lag


if __name__ == "__main__":
    main(namesrv_or_usual())
