# %% [markdown]
# # A first stream
#
# Count requests per user in windows of ten seconds, and watch when each row leaves. This notebook needs `pip install tidegate` and no Spark.

# %%
import tidegate as tg
from tidegate.testing import TopologyTestDriver

requests = tg.stream("requests", key="user", timestamp="ts")
windows = tg.TimeWindows.of_size_and_grace("10 seconds", "3 seconds")
counts = requests.group_by_key().windowed_by(windows).count()

# %% [markdown]
# ## Updates
#
# Without a suppression each record gives a row: the newest count of its window.

# %%
SECOND = 1_000


def pipe(driver, *seconds, user="A"):
    for second in seconds:
        driver.pipe_input({"user": user, "ts": second * SECOND})
        rows = [(row["window"].start // SECOND, row["count"]) for row in driver.read_output()]
        print(f"{user} at {second:2} s: {rows}")


pipe(TopologyTestDriver(counts), 1, 6, 12, 8)

# %% [markdown]
# ## Final results
#
# `until_window_closes` holds the rows back. A window of ten seconds closes when stream time reaches its end plus three seconds. The row leaves once, and no row follows it.

# %%
final = counts.suppress(tg.Suppressed.until_window_closes(tg.BufferConfig.unbounded()))
driver = TopologyTestDriver(final)
pipe(driver, 1, 6, 12, 8, 13, 4)

# %% [markdown]
# The record at 8 came out of order, and within the grace. The record at 4 came when its window was closed.

# %%
driver.drops

# %% [markdown]
# ## The topology
#
# As the last line of a cell a table is the picture of its topology. Below the operator stand its windows and their grace.

# %%
final

# %% [markdown]
# ## What waits
#
# Two windows have not left yet. `explain_pending` says what they wait for, and its answer is a picture too: the windows, and where stream time stands.

# %%
[pending] = tg.explain_pending(driver)
pending

# %% [markdown]
# ## Another user moves time
#
# All keys share one stream time. A record of B closes the windows of A.

# %%
pipe(driver, 24, user="B")

# %% [markdown]
# ## The late record, whole
#
# `late_records()` is one more output of the same operator.

# %%
driver = TopologyTestDriver(tg.outputs(final=final, late=counts.late_records()))
for second in (1, 6, 12, 8, 13, 4):
    driver.pipe_input({"user": "A", "ts": second * SECOND, "page": f"page {second}"})
[row for row in driver.read_output() if row["output"] == "late"]

# %% [markdown]
# The same functions run on Spark: give `tg.stream` a DataFrame, and write `final.to_df()`.
