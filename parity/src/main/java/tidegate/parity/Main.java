package tidegate.parity;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

/** One case per line of stdin, its result as one line of stdout: see README.md for both. */
public final class Main {
    public static void main(String[] args) throws Exception {
        // Whatever a library prints must not end up between the results.
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        ObjectMapper mapper = new ObjectMapper();
        Path states = Files.createTempDirectory("parity");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode asked = mapper.readTree(line);
            out.println(mapper.writeValueAsString(new Run(asked, mapper, states).result()));
        }
        try (var left = Files.walk(states)) {
            left.sorted(java.util.Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
        }
    }
}
