import sys

import pysqlite3

sys.modules["sqlite3"] = pysqlite3  # where the system's SQLite is too old for DBOS

from dbos import DBOS, SetWorkflowID

from shop import send

DBOS(config={"name": "invoices", "system_database_url": "sqlite:///dbos.sqlite", "log_level": "ERROR"})


@DBOS.step()
def ask_model(history: list[dict]) -> dict:
    # Says what a model would say; a real one is a client of its own, and its tools are described by hand.
    if len(history) == 1:
        return {"role": "assistant", "tool": "send_invoice", "arguments": {"order": "A-17"}}
    return {"role": "assistant", "text": "The invoice for A-17 is on its way."}


@DBOS.step()
def send_invoice(order: str) -> str:
    return send(order, key=f"{DBOS.workflow_id}/{DBOS.step_id}")


@DBOS.workflow()
def invoices(task: str) -> str:
    history = [{"role": "user", "text": task}]
    for _ in range(20):
        reply = ask_model(history)
        history.append(reply)
        if "tool" not in reply:
            return reply["text"]
        result = {"send_invoice": send_invoice}[reply["tool"]](**reply["arguments"])
        history.append({"role": "tool", "text": result})
    raise RuntimeError("20 turns and no end")


DBOS.launch()
with SetWorkflowID("invoices-2026-11"):
    print(invoices("Send an invoice for every order that has none."))
DBOS.destroy()
