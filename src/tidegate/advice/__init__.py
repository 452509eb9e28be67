"""Which grace? A recorded stream says what each one would have cost: `tg.advise` and `tidegate advise`.

The functions over records take and give numpy and Arrow, and need no Spark. What they find are tallies
(`advice.counts.Tally`), which add up: parts of a stream can be read anywhere and in any order.

    records -> Recorded -> order and stream time -> lateness (which grace each record needed)
                                                 -> results  (which rows each grace makes wrong, and what it costs)
                        -> Advice: the choice on the first 80 %, its test on the rest -> terminal, JSON, HTML
"""
