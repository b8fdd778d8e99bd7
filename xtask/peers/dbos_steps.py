"""Steps of one DBOS workflow on SQLite. `dbos_steps.py FOLDER STEPS` prints how many microseconds they took."""

import sys
import time

import pysqlite3

# DBOS asks for a newer SQLite than some distributions have.
sys.modules["sqlite3"] = pysqlite3

from dbos import DBOS, SetWorkflowID  # noqa: E402

folder, steps = sys.argv[1], int(sys.argv[2])
DBOS(config={"name": "steps", "system_database_url": f"sqlite:///{folder}/dbos.sqlite", "log_level": "ERROR"})


@DBOS.step()
def act(step: int) -> str:
    return f"done {step}"


@DBOS.workflow()
def work(steps: int) -> int:
    begun = time.perf_counter_ns()
    for step in range(steps):
        act(step)
    return (time.perf_counter_ns() - begun) // 1000


DBOS.launch()
with SetWorkflowID("measured"):
    print(work(steps))
DBOS.destroy()
