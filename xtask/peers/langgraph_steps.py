"""Steps of one LangGraph graph on SQLite, durability "sync". `langgraph_steps.py FOLDER STEPS` prints how many microseconds they took."""

import sqlite3
import sys
import time
from typing import TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

folder, steps = sys.argv[1], int(sys.argv[2])


class State(TypedDict):
    step: int
    last: str


def act(state: State) -> State:
    return {"step": state["step"] + 1, "last": f"done {state['step']}"}


graph = StateGraph(State)
graph.add_node("act", act)
graph.add_edge(START, "act")
graph.add_conditional_edges("act", lambda state: END if state["step"] >= steps else "act")
connection = sqlite3.connect(f"{folder}/langgraph.db", check_same_thread=False)
connection.execute("PRAGMA journal_mode = WAL")
connection.execute("PRAGMA synchronous = FULL")
compiled = graph.compile(checkpointer=SqliteSaver(connection))
begun = time.perf_counter_ns()
compiled.invoke(
    {"step": 0, "last": ""},
    {"configurable": {"thread_id": "measured"}, "recursion_limit": steps + 10},
    durability="sync",
)
print((time.perf_counter_ns() - begun) // 1000)
