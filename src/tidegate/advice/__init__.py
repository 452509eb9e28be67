"""Chooses a grace from a recorded stream, by the cost of each grace: `tg.advise` and `tidegate advise`.

The functions over records take and return numpy and Arrow, and need no Spark. Their results are tallies
(`advice.counts.Tally`), which merge: parts of a stream can be read anywhere and in any order.

    records -> Recorded -> order and stream time -> lateness (the grace that each record needed)
                                                 -> results  (the wrong rows and the costs of each grace)
                        -> Advice: the choice on the first 80 %, its test on the rest -> terminal, JSON, HTML
"""
