"""Steps of one DBOS workflow on PostgreSQL. `dbos_server_steps.py URL STEPS` prints how many microseconds they took."""

import sys
import time

from dbos import DBOS, SetWorkflowID

url, steps = sys.argv[1], int(sys.argv[2])
DBOS(config={"name": "steps", "system_database_url": url, "log_level": "ERROR"})


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
