package tidegate.hadoop;

/**
 * The local disk with checksum files, as Hadoop's own LocalFileSystem, but without programs.
 *
 * <p>Spark makes folders and reads and writes other files through it ({@code fs.file.impl}).
 */
public final class LocalFileSystem extends org.apache.hadoop.fs.LocalFileSystem {
    /** Hadoop calls this constructor. */
    public LocalFileSystem() {
        super(new RawLocalFileSystem());
    }
}
