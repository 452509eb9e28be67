package tidegate.parity;

/** The functions of the aggregations; parity/ours.py has the same. `deletes`: the value "x" deletes the aggregate. */
record Functions(boolean deletes, String initial) {
    private boolean gone(String value) {
        return deletes && "x".equals(value);
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

    /** Stands for what a filter took out, where Kafka's own would know whether there was anything before. */
    static final String GONE = "\u0000gone";

    static boolean passes(Object value) {
        return last(shown(value)) % 3 != 0;
    }

    static String mapped(Object value) {
        return shown(value) + "'";
    }

    /** The group of a value, null for none; the initial value of an aggregation is in none. */
    String group(Object value) {
        int found = last(String.valueOf(value)) % 4;
        return found == 3 || String.valueOf(value).equals(initial) ? null : "g" + found;
    }

    private static char last(String text) {
        return text.charAt(text.length() - 1);
    }

    private static String shown(Object value) {
        return value == null ? "~" : String.valueOf(value);
    }
}
