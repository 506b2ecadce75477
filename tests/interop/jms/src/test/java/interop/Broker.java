package interop;

import jakarta.jms.Connection;
import jakarta.jms.ConnectionFactory;
import jakarta.jms.JMSException;
import java.io.IOException;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.jms.JmsConnectionFactory;

/**
 * The brokers under test: a shared one at {@code broker.address}, and one that a test starts and
 * stops itself, by the script {@code spare.script}, which listens on {@code spare.port}.
 */
final class Broker implements AutoCloseable {

    static final long PATIENCE_MS = 10_000; // For what must happen; a loaded machine is slow.
    static final long NOTHING_MS = 100; // For what must not happen.

    private static final long START_MS = 40_000; // A broker on a Java virtual machine needs ten seconds.

    private final Process process;

    private Broker(Process process) {
        this.process = process;
    }

    /** A connection to the shared broker, not started; {@code options} as in {@code jms.prefetchPolicy.all=0}. */
    static Connection connect(String... options) throws JMSException {
        return factory(options).createConnection();
    }

    static ConnectionFactory factory(String... options) {
        return new JmsConnectionFactory("amqp://" + property("broker.address") + "?" + String.join("&", options));
    }

    static String spareUri() {
        return "amqp://localhost:" + property("spare.port");
    }

    /** Starts the spare broker and waits until it answers. */
    static Broker startSpare() throws IOException, InterruptedException {
        Process process = new ProcessBuilder("sh", property("spare.script"))
                .redirectErrorStream(true)
                .redirectOutput(Path.of("target", "spare-broker.log").toFile())
                .start();
        Broker broker = new Broker(process);
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(START_MS);
        while (!answers()) {
            if (!process.isAlive() || System.nanoTime() > deadline) {
                broker.close();
                throw new IOException("the spare broker did not start; see target/spare-broker.log");
            }
            Thread.sleep(50);
        }
        return broker;
    }

    /** Stops it as an operator would: SIGTERM. */
    void stop() throws InterruptedException {
        process.destroy();
        process.waitFor(PATIENCE_MS, TimeUnit.MILLISECONDS);
    }

    @Override
    public void close() {
        process.destroyForcibly();
    }

    private static boolean answers() {
        try (Connection connection = new JmsConnectionFactory(spareUri()).createConnection()) {
            connection.start();
            return true;
        } catch (JMSException refused) {
            return false;
        }
    }

    private static String property(String name) {
        String value = System.getProperty(name);
        if (value == null) {
            throw new IllegalStateException("run with -D" + name + "=…");
        }
        return value;
    }
}
