import sqlite3

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph

from shop import send

THREAD = {"configurable": {"thread_id": "invoices-2026-11"}}


def model(state: MessagesState) -> dict:
    # Says what a model would say.
    if len(state["messages"]) == 1:
        call = {"name": "send_invoice", "args": {"order": "A-17"}, "id": "call_1"}
        return {"messages": [AIMessage("", tool_calls=[call])]}
    return {"messages": [AIMessage("The invoice for A-17 is on its way.")]}


@tool
def send_invoice(order: str, key: str) -> str:
    """Sends the invoice for an order."""
    return send(order, key)


def tools(state: MessagesState) -> dict:
    answers = []
    for call in state["messages"][-1].tool_calls:
        key = f"{THREAD['configurable']['thread_id']}/{call['id']}"
        answers.append(ToolMessage(send_invoice.invoke({**call["args"], "key": key}), tool_call_id=call["id"]))
    return {"messages": answers}


graph = StateGraph(MessagesState)
graph.add_node("model", model)
graph.add_node("tools", tools)
graph.add_edge(START, "model")
graph.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else END)
graph.add_edge("tools", "model")
connection = sqlite3.connect("langgraph.db", check_same_thread=False)
compiled = graph.compile(checkpointer=SqliteSaver(connection))
# A known thread resumes where it left off; a new one is given the task.
known = compiled.get_state(THREAD).created_at is not None
task = None if known else {"messages": [("user", "Send an invoice for every order that has none.")]}
print(compiled.invoke(task, THREAD, durability="sync")["messages"][-1].content)
