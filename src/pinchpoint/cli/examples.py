"""Examples for the help of each command; a test parses every one of them."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "attach": ("pinchpoint attach 4711",),
    "bench": (
        'pinchpoint bench ab -- "python train.py" "python train_fixed.py"',
        "pinchpoint bench run -- python train.py",
    ),
    "bench ab": (
        'pinchpoint bench ab -- "python train.py" "python train_fixed.py"',
        "pinchpoint bench ab --knob num_workers=0,4 -- python train.py",
    ),
    "bench calibrate": ("pinchpoint bench calibrate -- python train.py",),
    "bench check": (
        "pinchpoint bench check --baseline base.json --update -- python train.py",
        "pinchpoint bench check --baseline base.json --fail step_time_ms:5% -- ./train",
    ),
    "bench history": ("pinchpoint bench history baseline.json",),
    "bench op": ('pinchpoint bench op "x @ x" --setup "import torch; x = torch.rand(512, 512)"',),
    "bench run": ("pinchpoint bench run --processes 5 -- python train.py",),
    "bench serve": ("pinchpoint bench serve http://localhost:8000/v1/completions --model NAME",),
    "causal": ("pinchpoint causal trace.json.gz", "pinchpoint causal trace.json.gz --by line"),
    "ceilings": ("pinchpoint ceilings", "pinchpoint ceilings --device cpu"),
    "compare": ("pinchpoint compare before.json.gz after.json.gz",),
    "completion": ('eval "$(pinchpoint completion bash)"',),
    "crossover": ("pinchpoint crossover matmul add --html crossover.html",),
    "demo": ("pinchpoint demo",),
    "diagnose": (
        "pinchpoint diagnose trace.json.gz",
        "pinchpoint diagnose trace.json.gz --html report.html",
        "pinchpoint diagnose trace.json.gz --fail-over 5%",
        "pinchpoint diagnose trace.json.gz --json --max-chars 8000",
    ),
    "doctor": ("pinchpoint doctor",),
    "explain": ("pinchpoint explain", "pinchpoint explain sync-in-loop"),
    "export": (
        "pinchpoint export trace.json.gz --to speedscope -o stacks.speedscope.json",
        "pinchpoint export trace.json.gz --to chrome --steps 3-5 -o steps.json",
        "pinchpoint export trace.json.gz --to parquet -o tables/",
    ),
    "formats": ("pinchpoint formats",),
    "kernels": ("pinchpoint kernels report.ncu-rep",),
    "mcp": ("pinchpoint mcp profiles/",),
    "memory": (
        "pinchpoint memory snapshot.pickle",
        "pinchpoint memory snapshot.pickle --html memory.html",
    ),
    "merge": ("pinchpoint merge part1.json part2.json",),
    "monitor": ("pinchpoint monitor", "pinchpoint monitor --log samples.csv"),
    "ncu": ("pinchpoint ncu trace.json.gz python train.py",),
    "note": ('pinchpoint note runs/a "learning rate doubled"',),
    "open": (
        "pinchpoint open trace.json.gz",
        "pinchpoint open trace.json.gz --steps 3-5 --no-browser",
    ),
    "ranks": ("pinchpoint ranks traces/",),
    "report": ("pinchpoint report trace.json.gz -o report.html",),
    "roofline": ("pinchpoint roofline trace.json.gz",),
    "run": ("pinchpoint run train.py --epochs 1", "pinchpoint run -o runs/a train.py"),
    "serve": ("pinchpoint serve runs/", "pinchpoint serve runs/ --port 0"),
    "show": (
        "pinchpoint show trace.json.gz sync-in-loop",
        "pinchpoint show trace.json.gz 1 --json",
    ),
    "skill": ("pinchpoint skill",),
    "sql": (
        'pinchpoint sql trace.json.gz "SELECT name, sum(duration_ns) FROM device_ops GROUP BY ALL"',
    ),
    "try": ("pinchpoint try --knob num_workers=4,8 --knob pin_memory -- python train.py",),
}


def epilogue(name: str) -> str | None:
    """The examples of a command as the end of its help."""
    lines = EXAMPLES.get(name)
    return None if lines is None else "examples:\n" + "\n".join(f"  {line}" for line in lines)
