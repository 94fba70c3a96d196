"""The table of C2ST against seconds of training."""

from benchmarks.time_to_quality import table


def point(method: str, seconds: int, c2st: float) -> dict[str, object]:
    row = {"task": "slcp", "method": method, "asked_seconds": seconds, "cpu_seconds": seconds + 1, "c2st": c2st}
    return {**row, "sample_seconds": 0.2, "machine": "a machine", "date": "today"}


def test_the_lowest_of_each_time_is_bold_and_missing_times_show_the_last_figure() -> None:
    rows = [point("propersbi", 10, 0.9), point("propersbi", 30, 0.8), point("sbi NPE", 10, 0.85)]
    lines = table(rows).splitlines()
    assert "| propersbi | 0.900 (11) | **0.800** (31) | 0.20 s |" in lines
    assert "| sbi NPE | **0.850** (11) | 0.850 (11) | 0.20 s |" in lines
