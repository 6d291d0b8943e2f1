"""The figures as a table for people."""

from __future__ import annotations

from typing import Any


def table(figures: dict[str, Any]) -> str:
    """Plain text, one block per part that was measured."""
    lines: list[str] = []
    about = figures["machine"]
    lines += [
        f"Python {about['python']}, {about['system']}, {about['cores']} cores, "
        f"load {about['load']}; disk sync p50 {about['sync_p50_ms']} ms, "
        f"p99 {about['sync_p99_ms']} ms",
        "",
    ]
    if figures["quick"]:
        lines += ["quick: shows that all of it works; far too small to mean anything", ""]
    rates = {**figures.get("throughput", {})}
    rates |= {f"chain, {name}": row for name, row in figures.get("growth", {}).items()}
    if rates:
        lines.append(f"{'':34}{'tasks/s':>9}{'worst run':>11}{'CPU ms/task':>13}{'file MB':>9}")
        for name, row in rates.items():
            file = f"{row['file_mb']:9,.0f}" if "file_mb" in row else ""
            lines.append(
                f"{name:34}{row['tasks_per_second']:9,.0f}{row['slowest_tasks_per_second']:11,.0f}"
                f"{row['cpu_ms_per_task']:13.3f}{file}"
            )
        lines.append("")
    if found := figures.get("latency"):
        lines.append(
            f"{'single task, ' + str(found['starts']) + ' starts over HTTP':34}"
            f"{'p50 ms':>9}{'p99 ms':>11}{'max ms':>13}"
        )
        for name, label in (
            ("start_to_done", "createdAt to endedAt, as stored"),
            ("http_start", "client: POST start"),
            ("http_start_and_wait", "client: POST start, GET ?wait"),
        ):
            p50, p99, most = (found[f"{name}_{part}_ms"] for part in ("p50", "p99", "max"))
            lines.append(f"{label:34}{p50:9.1f}{p99:11.1f}{most:13.1f}")
        lines.append("")
    if found := figures.get("memory"):
        lines.append(
            f"memory: {found['started_mb']:.0f} MB started, {found['queued_mb']:.0f} MB with "
            f"{found['queued']:,} tasks queued, {found['done_mb']:.0f} MB after all were done, "
            f"{found['peak_mb']:.0f} MB at most"
        )
    if found := figures.get("startup"):
        lines.append(
            f"start-up: {found['best_s']:.2f} s at best, {found['median_s']:.2f} s in the middle, "
            f"{found['cpu_s']:.2f} s of processor time"
        )
    return "\n".join(lines).rstrip()
