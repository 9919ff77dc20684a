"""`octavo doctor`: what this machine offers, and what is wrong with it."""

import os
from typing import Annotated

import typer
from rich.console import Console

from engine.machine import Machine, describe_machine, measure_bandwidth

_LEAST_MEMORY = 1 << 30


def register(app: typer.Typer) -> None:
    app.command()(doctor)


def doctor(
    megabytes: Annotated[int, typer.Option(min=16, max=65536, help="Buffer of the bandwidth measurement.")] = 1024,
) -> None:
    """Describe the processor, the memory and the cache folder; exit code 1 if something is wrong."""
    machine = describe_machine()
    console = Console()
    console.print(f"cpu          {machine.cpu}", highlight=False, soft_wrap=True)
    console.print(f"isa          {machine.isa} (can run: {', '.join(machine.supported)})", highlight=False)
    console.print(f"cores        {machine.cores} usable", highlight=False)
    console.print(f"memory       {machine.memory_bytes / 1e9:.1f} GB free", highlight=False)
    console.print(f"cache        {machine.cache_folder}", highlight=False, soft_wrap=True)
    console.print(f"kernels      {machine.kernels}", highlight=False, soft_wrap=True)
    size = min(megabytes, max(16, machine.memory_bytes // 4 >> 20))
    for threads in sorted({1, machine.cores}):
        rate = measure_bandwidth(threads, size) / 1e9
        console.print(f"bandwidth    {rate:.1f} GB/s read by {threads} thread(s), {size} MiB", highlight=False)
    troubles = find_troubles(machine)
    for trouble in troubles:
        console.print(f"wrong        {trouble}", style="red", highlight=False, soft_wrap=True)
    if troubles:
        raise typer.Exit(1)
    console.print("Nothing is wrong.", style="green")


def find_troubles(machine: Machine) -> list[str]:
    """Return one sentence for each thing that would keep Octavo from working well."""
    troubles = []
    if machine.isa == "generic":
        troubles.append("This processor has neither AVX2 nor AVX-512 VNNI; Octavo runs, but slowly.")
    if machine.memory_bytes < _LEAST_MEMORY:
        troubles.append("Less than 1 GB of memory is free; even small models will not fit.")
    if not _writable(machine):
        troubles.append(f"{machine.cache_folder} cannot be written; set OCTAVO_CACHE to a folder of your own.")
    return troubles


def _writable(machine: Machine) -> bool:
    """Tell whether the cache folder, or the nearest folder above it that exists, takes new files."""
    folder = machine.cache_folder
    while not os.path.lexists(folder) and folder != folder.parent:  # nor is what lies in a closed folder to be seen
        folder = folder.parent
    return os.access(folder, os.W_OK | os.X_OK)
