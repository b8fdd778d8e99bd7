"""A shop that sends an invoice once for each key, and keeps silent afterwards while there is a file `slow`."""

import os
import time


def send(order: str, key: str) -> str:
    if os.path.exists("invoices.txt") and not os.path.exists("without-keys"):
        with open("invoices.txt", encoding="utf-8") as file:
            if any(line.startswith(key) for line in file):
                return f"the invoice for {order} was sent before"
    with open("invoices.txt", "a", encoding="utf-8") as file:
        file.write(f"{key} {order}\n")
    print(f"sent the invoice for {order}; waiting for the shop to say so", flush=True)
    while os.path.exists("slow"):
        time.sleep(0.05)
    return f"the invoice for {order} is sent"
