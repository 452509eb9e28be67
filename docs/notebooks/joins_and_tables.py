# %% [markdown]
# # Joins and tables
#
# A stream of orders meets a stream of payments, and looks up its customers in a table. This notebook needs no Spark.

# %%
import tidegate as tg
from tidegate.testing import TopologyTestDriver

MINUTE = 60_000
orders = tg.stream("orders", key="order", timestamp="ts", stream_time="max")
payments = tg.stream("payments", key="order", timestamp="ts", stream_time="max")

# %% [markdown]
# ## Two streams
#
# A payment comes up to 15 minutes after its order, and two more minutes of grace are for late ones. In a left join an order without a payment leaves alone, once, when no payment can come any more.

# %%
in_time = tg.JoinWindows.of_time_difference_and_grace("15 minutes", "2 minutes").before("0 minutes")
driver = TopologyTestDriver(orders.left_join(payments, in_time))


def pipe(name, minute, **record):
    driver.pipe_input({"ts": minute * MINUTE, **record}, name)
    print(
        f"{name} at {minute:2}:", [{k: v for k, v in row.items() if k != "timestamp"} for row in driver.read_output()]
    )


pipe("orders", 0, order=1, price=30)
pipe("orders", 1, order=2, price=50)
pipe("payments", 9, order=1, paid=30)
pipe("orders", 19, order=3, price=20)

# %% [markdown]
# Order 2 left without a payment when stream time reached 19 minutes: 1 + 15 + 2 were passed. That row is final. A payment that comes now joins nothing, because the order is closed.

# %%
pipe("payments", 3, order=2, paid=50)

# %% [markdown]
# ## What waits
#
# Order 3 waits for its payment. The picture shows how far stream time has to go until it leaves alone.

# %%
[pending] = tg.explain_pending(driver)
pending

# %% [markdown]
# ## A stream and a table
#
# Each order looks up the row of its customer. With a `history` it finds the row *as of its own timestamp*, and not the one that came last.

# %%
customers = tg.table("customers", key="customer", timestamp="ts", history="1 hour")
by_customer = tg.stream("orders", key="customer", timestamp="ts")
driver = TopologyTestDriver(by_customer.left_join(customers))
pipe("customers", 0, customer="Ada", city="Rome")
pipe("customers", 30, customer="Ada", city="Oslo")
pipe("orders", 40, customer="Ada", price=30)
pipe("orders", 20, customer="Ada", price=10)

# %% [markdown]
# ## A table that is grouped again
#
# How many customers does each city have? When Ada moves, Rome loses one and Oslo gains one.

# %%
cities = tg.table("customers", key="customer", timestamp="ts").group_by("city").count()
driver = TopologyTestDriver(cities)
pipe("customers", 0, customer="Ada", city="Rome")
pipe("customers", 1, customer="Bob", city="Rome")
pipe("customers", 2, customer="Ada", city="Oslo")

# %% [markdown]
# ## The plan
#
# As the last line of a cell a topology is a picture.

# %%
paid = orders.left_join(payments, in_time)
paid

# %% [markdown]
# `describe()` says the same as text, and what the operators become on Spark.

# %%
print(paid.describe())
