import asyncio
import sys

import pysqlite3

sys.modules["sqlite3"] = pysqlite3  # where the system's SQLite is too old for DBOS

from dbos import DBOS, SetWorkflowID
from pydantic_ai import Agent
from pydantic_ai.durable_exec.dbos import DBOSAgent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from shop import send

DBOS(config={"name": "invoices", "system_database_url": "sqlite:///dbos.sqlite", "log_level": "ERROR"})


def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    # Says what a model would say.
    if len(messages) == 1:
        return ModelResponse([ToolCallPart("send_invoice", {"order": "A-17"})])
    return ModelResponse([TextPart("The invoice for A-17 is on its way.")])


agent = Agent(FunctionModel(model), name="invoices")


@agent.tool_plain
@DBOS.step()
async def send_invoice(order: str) -> str:
    """Sends the invoice for an order."""
    return send(order, key=f"{DBOS.workflow_id}/{DBOS.step_id}")


durable = DBOSAgent(agent)


async def main() -> None:
    DBOS.launch()
    with SetWorkflowID("invoices-2026-11"):
        result = await durable.run("Send an invoice for every order that has none.")
    print(result.output)
    DBOS.destroy()


asyncio.run(main())
