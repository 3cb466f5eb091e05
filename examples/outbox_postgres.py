"""The same with PostgreSQL (`pip install "psycopg[binary]"`), on both sides: sold once, and billed once."""

import os
import sys
import threading

import psycopg

from flaremq import ConsumeFromWhere, ConsumerSettings
from flaremq.client.inbox import Inbox
from flaremq.client.settings import namesrv_or_usual
from flaremq.client.sync import Message, PushConsumer, ReceivedMessage, TransactionProducer

TABLES = (
    "CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, item TEXT, message_id TEXT UNIQUE)",
    "CREATE TABLE IF NOT EXISTS bills (order_id TEXT, item TEXT)",
)
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


def main(namesrv: str, database: str) -> list[tuple[str, str]]:
    with psycopg.connect(database) as db:
        for table in TABLES:
            db.execute(table)

    def was_stored(message: ReceivedMessage) -> bool:
        """The broker asks about a message whose transaction was never ended: the table knows."""
        with psycopg.connect(database) as own:
            found = own.execute("SELECT 1 FROM orders WHERE message_id = %s", (message.message_id,))
            return found.fetchone() is not None

    with TransactionProducer("pg-shop", namesrv, checker=was_stored) as producer:
        for order, item in (("o-1", "one book"), ("o-2", "two pens")):
            message = Message("PgSold", item.encode(), keys=[order])
            with producer.transaction(message) as transaction, psycopg.connect(database) as db:
                db.execute("INSERT INTO orders VALUES (%s, %s, %s)", (order, item, transaction.id))

    inbox = Inbox(lambda: psycopg.connect(database), group="pg-billing")
    inbox.create_table()
    billed = threading.Semaphore(0)
    consumer = PushConsumer("pg-billing", namesrv, settings=ConsumerSettings(start_from=FIRST))

    @consumer.subscribe("PgSold")
    @inbox.handler
    def bill(message: ReceivedMessage, db: psycopg.Connection) -> None:
        db.execute("INSERT INTO bills VALUES (%s, %s)", (message.keys[0], message.body.decode()))
        billed.release()

    with inbox, consumer:  # The consumer stops first: its last bill may not be committed yet.
        for _ in range(2):
            billed.acquire(timeout=30)
    with psycopg.connect(database) as db:
        bills = [(str(order), str(item)) for order, item in db.execute("SELECT * FROM bills ORDER BY 1")]
    print(f"billed: {bills}")
    return bills


if __name__ == "__main__":
    main(namesrv_or_usual(), sys.argv[1] if len(sys.argv) > 1 else os.environ.get("DATABASE_URL", ""))
