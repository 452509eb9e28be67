package tidegate.parity;

/** The functions of the aggregations; parity/ours.py has the same. `deletes`: the value "x" deletes the aggregate. */
record Functions(boolean deletes) {
    private boolean gone(String value) {
        return deletes && "x".equals(value);
    }

    private static String shown(String value) {
        return value == null ? "~" : value;
    }

    String reduce(String aggregate, String value) {
        return gone(value) ? null : shown(aggregate) + "+" + shown(value);
    }

    String history(String key, String value, String aggregate) {
        return gone(value) ? null : shown(aggregate) + "+" + shown(value);
    }

    String mergeHistories(String key, String first, String second) {
        return shown(first) + "&" + shown(second);
    }

    String collect(String key, String value, String aggregate) {
        return value == null ? aggregate : aggregate + "," + value;
    }
}
