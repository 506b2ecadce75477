package interop;

import static interop.Broker.PATIENCE_MS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What clients notice when their broker stops. */
@Timeout(value = 120, unit = TimeUnit.SECONDS)
class BrokerStopTest {

    private static final String QUEUE = "stop";
    private static final long RECONNECT_MS = 40_000;

    @Test
    void theExceptionListenerIsTold() throws Exception {
        CompletableFuture<JMSException> told = new CompletableFuture<>();
        try (Broker broker = Broker.startSpare();
                Connection connection = new JmsConnectionFactory(Broker.spareUri()).createConnection()) {
            connection.setExceptionListener(told::complete);
            connection.start();
            Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            MessageConsumer consumer = session.createConsumer(session.createQueue(QUEUE));
            broker.stop();
            JMSException failure = told.get(PATIENCE_MS, TimeUnit.MILLISECONDS);
            assertNotNull(failure.getMessage());
            assertThrows(JMSException.class, consumer::receiveNoWait);
        }
    }

    @Test
    void failoverGoesOnWithTheNextBroker() throws Exception {
        String uri = "failover:(" + Broker.spareUri() + ")?failover.reconnectDelay=50&failover.useReconnectBackOff=false";
        Broker broker = Broker.startSpare();
        try (Connection connection = new JmsConnectionFactory(uri).createConnection()) {
            connection.start();
            Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            MessageConsumer consumer = session.createConsumer(session.createQueue(QUEUE));
            MessageProducer producer = session.createProducer(session.createQueue(QUEUE));
            for (String text : new String[] {"before", "after"}) {
                producer.send(session.createTextMessage(text));
                assertEquals(text, ((TextMessage) consumer.receive(RECONNECT_MS)).getText());
                if (text.equals("before")) {
                    broker.stop();
                    broker = Broker.startSpare();
                }
            }
        } finally {
            broker.close();
        }
    }
}
