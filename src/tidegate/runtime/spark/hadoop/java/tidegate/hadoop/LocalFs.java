package tidegate.hadoop;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FsConstants;
import org.apache.hadoop.fs.FsServerDefaults;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.local.LocalConfigKeys;

/**
 * The local disk with checksum files, as Hadoop's own LocalFs, but without programs.
 *
 * <p>Spark writes the files of a checkpoint through it ({@code fs.AbstractFileSystem.file.impl}).
 */
public final class LocalFs extends ChecksumFs {
    /** Hadoop calls this constructor. */
    public LocalFs(URI uri, Configuration configuration) throws IOException, URISyntaxException {
        super(new Raw(uri, configuration));
    }

    private static final class Raw extends DelegateToFileSystem {
        private static final int NO_PORT = -1;

        Raw(URI uri, Configuration configuration) throws IOException, URISyntaxException {
            super(uri, new RawLocalFileSystem(), configuration, FsConstants.LOCAL_FS_URI.getScheme(), false);
        }

        @Override
        public int getUriDefaultPort() {
            return NO_PORT;
        }

        @Override
        public FsServerDefaults getServerDefaults(Path path) throws IOException {
            return LocalConfigKeys.getServerDefaults();
        }

        @Override
        public boolean isValidName(String name) {
            // Any name may be a name of a local file.
            return true;
        }
    }
}
