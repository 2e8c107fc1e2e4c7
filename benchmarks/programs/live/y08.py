"""Ensemble of two-dimensional turbulence runs: pseudo-spectral vorticity equation, RK4, in JAX."""
import argparse
import json
import statistics
import time


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=["healthy"], default="healthy")
    p.add_argument("--device", default="cuda")
    p.add_argument("--steps", type=int, default=260)
    p.add_argument("--max-seconds", type=float, default=1e9)
    p.add_argument("--trace")
    args = p.parse_args()
    import jax
    jax.config.update("jax_platforms", args.device)
    simulate(args)


def simulate(args):
    import jax
    import jax.numpy as jnp
    members, n, substeps = (16, 2048, 4) if args.device == "cuda" else (2, 64, 2)
    nu, dt = 2e-5, 1e-4

    ky = (jnp.fft.fftfreq(n) * n)[:, None]
    kx = (jnp.fft.rfftfreq(n) * n)[None, :]
    k2 = kx * kx + ky * ky
    inv = jnp.where(k2 > 0, 1.0 / jnp.where(k2 > 0, k2, 1.0), 0.0)
    keep = ((jnp.abs(kx) < n / 3) & (jnp.abs(ky) < n / 3)).astype(jnp.float32)
    to_u, to_v = ky * inv, -kx * inv
    from_uv, from_sq = keep * (kx * kx - ky * ky), keep * kx * ky
    decay = -nu * k2

    def tendency(w):
        u = jnp.fft.irfft2(1j * to_u * w, s=(n, n))
        v = jnp.fft.irfft2(1j * to_v * w, s=(n, n))
        return from_uv * jnp.fft.rfft2(u * v) + from_sq * jnp.fft.rfft2((v - u) * (v + u)) + decay * w

    def rk4(_, w):
        k = tendency(w)
        acc = k
        k = tendency(w + 0.5 * dt * k)
        acc = acc + 2 * k
        k = tendency(w + 0.5 * dt * k)
        acc = acc + 2 * k
        k = tendency(w + dt * k)
        return w + (dt / 6) * (acc + k)

    def advance(w):
        w = jax.lax.fori_loop(0, substeps, rk4, w)
        half = jnp.sum(jnp.abs(w) ** 2 * inv, axis=(1, 2)) / n ** 4
        return w, half

    @jax.jit
    def initial(key):
        noise = jax.random.normal(key, (members, n, n))
        return jnp.fft.rfft2(noise) * keep * jnp.exp(-((jnp.sqrt(k2) - 8.0) / 4.0) ** 2) * 20.0

    step = jax.jit(advance, donate_argnums=0)
    w = initial(jax.random.key(0))
    series = []

    def one():
        nonlocal w
        w, energy = step(w)
        series.append(energy)
        if len(series) > 8:
            total = float(series.pop(0).mean())
            if not total < 1e12:
                raise RuntimeError("the run has blown up")

    for _ in range(5):
        one()
    jax.block_until_ready(w)
    times, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        one()
        now = time.perf_counter()
        times.append(now - last)
        last = now
        if now - start > args.max_seconds:
            break
    jax.block_until_ready(w)
    mean = (time.perf_counter() - start) / len(times)
    print(json.dumps({"program": "y08", "variant": args.variant, "steps": len(times),
                      "step_ms_mean": round(1e3 * mean, 3),
                      "step_ms_median": round(1e3 * statistics.median(times), 3)}), flush=True)

    if args.trace:
        for _ in range(2):
            one()
        jax.block_until_ready(w)
        with jax.profiler.trace(args.trace):
            for i in range(4):
                with jax.profiler.StepTraceAnnotation("advance", step_num=i):
                    one()
            jax.block_until_ready(w)


if __name__ == "__main__":
    main()
