package tidegate.hadoop;

import java.io.File;
import java.lang.reflect.Field;
import java.util.Set;

/**
 * Socket files of Spark, through which Python workers talk to it.
 *
 * <p>Spark deletes each of them, and asks Java before to delete it at its end. Java keeps the names of such files for as
 * long as it runs, also of files that are gone: several for each micro-batch of a query.
 */
public final class SocketFiles {
    private static final long MINUTE_MS = 60_000;
    private static boolean watched;

    private SocketFiles() {}

    /** Lets Java forget the names of socket files that are gone, from now on once a minute. */
    public static synchronized void watch() {
        if (!watched) {
            watched = true;
            Thread thread = new Thread(SocketFiles::forgetForEver, "tidegate socket files");
            thread.setDaemon(true);
            thread.start();
        }
    }

    /** Lets Java forget the names of socket files that are gone now. */
    public static void forget() throws ReflectiveOperationException {
        Class<?> hook = Class.forName("java.io.DeleteOnExitHook");
        Field field = hook.getDeclaredField("files");
        field.setAccessible(true); // Spark's launcher opens java.io
        synchronized (hook) { // as the methods of the class do
            Set<?> names = (Set<?>) field.get(null);
            if (names != null) { // null while Java ends
                names.removeIf(name -> name.toString().endsWith(".sock") && !new File(name.toString()).exists());
            }
        }
    }

    private static void forgetForEver() {
        try {
            while (true) {
                Thread.sleep(MINUTE_MS);
                forget();
            }
        } catch (ReflectiveOperationException | RuntimeException | InterruptedException ended) {
            // Another Java keeps these names elsewhere, or shows them to nobody: they stay, as without this class.
        }
    }
}
