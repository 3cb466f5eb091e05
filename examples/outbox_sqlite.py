"""An order in SQLite and the message about it: both or neither, also if the program dies in between."""

import sqlite3
from contextlib import closing
from pathlib import Path

from flaremq.client.settings import namesrv_or_usual
from flaremq.client.sync import Message, ReceivedMessage, TransactionProducer

ORDERS = "CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, item TEXT, message_id TEXT UNIQUE)"


class Shop:
    """Orders in a database file, each with the id of its message."""

    def __init__(self, database: Path, namesrv: str) -> None:
        self._database = database
        with closing(sqlite3.connect(database)) as db:
            db.execute(ORDERS)
        self.producer = TransactionProducer("shop", namesrv, checker=self.was_stored)

    def was_stored(self, message: ReceivedMessage) -> bool:
        """The broker asks about a message whose transaction was never ended: the table knows."""
        with closing(sqlite3.connect(self._database)) as db:  # Runs in a thread of its own.
            found = db.execute("SELECT 1 FROM orders WHERE message_id = ?", (message.message_id,))
            return found.fetchone() is not None

    def sell(self, order: str, item: str) -> None:
        message = Message("Sold", item.encode(), keys=[order])
        with (
            self.producer.transaction(message) as transaction,
            closing(sqlite3.connect(self._database)) as db,
            db,  # Commits at the end, or rolls back.
        ):
            db.execute("INSERT INTO orders VALUES (?, ?, ?)", (order, item, transaction.id))


def main(namesrv: str, database: Path) -> int:
    shop = Shop(database, namesrv)
    with shop.producer:
        shop.sell("o-1", "one book")
        shop.sell("o-2", "two pens")
        try:
            shop.sell("o-1", "a mistake")  # There is such an order: no row, so no message.
        except sqlite3.IntegrityError as error:
            print(f"not sold: {error}")
    with closing(sqlite3.connect(database)) as db:
        (count,) = db.execute("SELECT count(*) FROM orders").fetchone()
    print(f"{count} orders are stored, and as many messages are on their way")
    return int(count)


if __name__ == "__main__":
    main(namesrv_or_usual(), Path("shop.db"))
