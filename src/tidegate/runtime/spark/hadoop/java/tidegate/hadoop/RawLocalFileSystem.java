package tidegate.hadoop;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Set;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local disk, with two questions answered by Java.
 *
 * <p>Without its native library Hadoop starts {@code chmod} for each new file and folder, and {@code readlink} for each
 * name that it renames from or to.
 */
final class RawLocalFileSystem extends org.apache.hadoop.fs.RawLocalFileSystem {
    @Override
    public FileStatus getFileLinkStatus(Path path) throws IOException {
        // Hadoop gives the same status for all that is no link.
        return Files.isSymbolicLink(pathToFile(path).toPath()) ? super.getFileLinkStatus(path) : getFileStatus(path);
    }

    @Override
    public void setPermission(Path path, FsPermission permission) throws IOException {
        if (permission.getStickyBit()) {
            // Java has no name for this bit.
            super.setPermission(path, permission);
            return;
        }
        Set<PosixFilePermission> permissions = PosixFilePermissions.fromString(permission.toString());
        Files.setPosixFilePermissions(pathToFile(path).toPath(), permissions);
    }
}
