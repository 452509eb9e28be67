# %% [markdown]
# # Choosing a grace
#
# A short grace loses records. A long grace delays every result. `tg.advise` reads a recording, and says what each grace would have cost.

# %%
import random
from datetime import timedelta

import pyarrow as pa

import tidegate as tg
from tidegate.testing import TopologyTestDriver

random.seed(2026)
SECOND = 1_000

# %% [markdown]
# ## A recording
#
# A thousand requests of four users, one each second. Each arrives some seconds after it happened: 4 on average, sometimes many more.

# %%
delays = [round(random.expovariate(1 / 4_000)) for _ in range(1_000)]
arrivals = [second * SECOND for second in range(60, 1_060)]
recording = pa.table(
    {
        "user": [random.choice("ABCD") for _ in arrivals],
        "ts": [arrival - delay for arrival, delay in zip(arrivals, delays, strict=True)],
        "arrival": arrivals,
    }
)
recording.num_rows, max(delays)

# %% [markdown]
# ## What each grace costs
#
# We count per user and minute, and raise an alert for minutes with fewer than eight requests. Today the grace is ten seconds.

# %%
advice = tg.advise(
    recording,
    key="user",
    timestamp="ts",
    arrival="arrival",
    windows=tg.TimeWindows.of_size_and_grace("1 minute", "10 seconds"),
    alert="count < 8",
    graces=["0 seconds", "5 seconds", "10 seconds", "20 seconds", "30 seconds"],
)
for cost in advice.costs:
    print(
        f"{cost.grace // SECOND:2} s: {cost.late:3} late, {cost.wrong:2} wrong rows, {cost.false_alerts} false alerts"
    )

# %% [markdown]
# ## The page
#
# As the last line of a cell the advice is a page with pictures: how late records are, when, and in which partition.

# %%
advice

# %% [markdown]
# ## The numbers
#
# `as_dict()` and `json()` give everything to a program, for example to a test that fails when the stream gets slower.

# %%
advice.choice.grace // SECOND, advice.cost(10 * SECOND).late_share < 0.2

# %% [markdown]
# ## The grace, in a topology
#
# The chosen grace becomes a part of the windows. The picture draws both to one scale.

# %%
requests = tg.stream("requests", key="user", timestamp="ts")
chosen = tg.TimeWindows.of_size_and_grace("1 minute", timedelta(milliseconds=advice.choice.grace))
final = requests.group_by_key().windowed_by(chosen).emit_strategy(tg.EmitStrategy.on_window_close()).count()
final

# %% [markdown]
# ## What the grace keeps waiting
#
# The recording goes through the test driver. At its end these windows still take late records.

# %%
driver = TopologyTestDriver(final)
driver.pipe_batch(recording.select(["user", "ts"]))
[pending] = tg.explain_pending(driver)
pending
