// Proton C++ against the broker at host:port (the only argument). One class is one promise of the broker;
// prints a line for each, then the count.

#include <proton/connection.hpp>
#include <proton/connection_options.hpp>
#include <proton/container.hpp>
#include <proton/delivery.hpp>
#include <proton/error_condition.hpp>
#include <proton/message.hpp>
#include <proton/messaging_handler.hpp>
#include <proton/receiver.hpp>
#include <proton/receiver_options.hpp>
#include <proton/sender.hpp>
#include <proton/sender_options.hpp>
#include <proton/source.hpp>
#include <proton/source_options.hpp>
#include <proton/target.hpp>
#include <proton/target_options.hpp>
#include <proton/tracker.hpp>
#include <proton/types.hpp>

#include <unistd.h>

#include <csignal>
#include <functional>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

const unsigned PATIENCE_S = 20; // For one scenario on a loaded machine.

// A scenario that hangs ends the program: the container has no way to stop that a pending timer does not delay.
extern "C" void give_up(int) {
    const char message[] = "FAILED: nothing happened any more\n";
    if (write(STDOUT_FILENO, message, sizeof message - 1) < 0) _exit(2);
    _exit(1);
}

using Bodies = std::vector<proton::value>;

// What all scenarios do: connect, send `bodies` to a queue of their own, then go on in `stored` once the
// broker has accepted all of them, until one of them calls `finish` or `fail`.
class Scenario : public proton::messaging_handler {
  public:
    Scenario(const std::string& scenario, const Bodies& sent) : name(scenario), bodies(sent) {}

    void run(const std::string& url) {
        queue = "cpp-" + std::to_string(getpid()) + "-" + name;
        proton::container own(*this);
        container = &own;
        container->connect(url);
        alarm(PATIENCE_S);
        container->run();
        alarm(0);
        if (!failure.empty()) throw std::runtime_error(failure);
    }

    const std::string name;

  protected:
    virtual void stored(proton::connection&) = 0;
    virtual proton::sender_options how() { return proton::sender_options(); }

    void on_connection_open(proton::connection& c) override {
        connection = c;
        if (bodies.empty()) stored(c);
        else c.open_sender(queue, how());
    }

    void on_sendable(proton::sender& s) override {
        for (; next < bodies.size() && s.credit() > 0; ++next) s.send(proton::message(bodies[next]));
    }

    void on_tracker_accept(proton::tracker& t) override {
        if (++accepted == bodies.size()) {
            t.sender().close();
            stored(connection);
        }
    }

    void on_error(const proton::error_condition& e) override { fail(e.what()); }

    proton::receiver receive(int credit, proton::receiver_options options = proton::receiver_options()) {
        proton::receiver r = connection.open_receiver(queue, options.credit_window(0).auto_accept(false));
        if (credit > 0) r.add_credit(credit);
        return r;
    }

    void finish() { connection.close(); } // The container stops with its last connection.

    void fail(const std::string& why) {
        if (failure.empty()) failure = why;
        container->stop();
    }

    void expect(bool right, const std::string& what) {
        if (!right) fail(what);
    }

    const Bodies bodies;
    std::string queue;
    proton::connection connection;

  private:
    proton::container* container = nullptr;
    std::size_t next = 0;
    std::size_t accepted = 0;
    std::string failure;
};

Bodies numbers(int count) {
    Bodies all;
    for (int n = 0; n < count; ++n) all.push_back(n);
    return all;
}

class OrderKept : public Scenario {
  public:
    OrderKept() : Scenario("messages arrive in the order they were sent", numbers(1000)) {}

  private:
    void stored(proton::connection& c) override {
        c.open_receiver(queue, proton::receiver_options().credit_window(20));
    }

    void on_message(proton::delivery&, proton::message& m) override {
        expect(m.body() == proton::value(got), "out of order: " + proton::to_string(m.body()));
        if (++got == int(bodies.size())) finish();
    }

    int got = 0;
};

class Settled : public Scenario {
  public:
    Settled() : Scenario("settled messages go in and out without an answer", {}) {}

  private:
    void stored(proton::connection& c) override {
        c.open_sender(queue, proton::sender_options().delivery_mode(proton::delivery_mode::AT_MOST_ONCE));
    }

    void on_sendable(proton::sender& s) override {
        if (sent++ > 0) return;
        s.send(proton::message("settled"));
        proton::receiver_options options;
        receive(1, options.delivery_mode(proton::delivery_mode::AT_MOST_ONCE));
    }

    void on_tracker_accept(proton::tracker&) override { fail("answered"); }

    void on_message(proton::delivery& d, proton::message& m) override {
        expect(m.body() == proton::value("settled"), "body");
        expect(d.settled(), "not settled");
        finish();
    }

    int sent = 0;
};

class Released : public Scenario {
  public:
    Released() : Scenario("released goes back to its place and does not count", numbers(2)) {}

  private:
    void stored(proton::connection&) override { receive(1); }

    void on_message(proton::delivery& d, proton::message& m) override {
        expect(m.body() == proton::value(0), "not the first");
        expect(m.delivery_count() == 0, "counted");
        d.release();
        if (++seen == 3) finish();
        else d.receiver().add_credit(1);
    }

    int seen = 0;
};

class Modified : public Scenario {
  public:
    Modified() : Scenario("modified goes back to its place", numbers(2)) {}

  private:
    void stored(proton::connection&) override { receive(1); }

    // Proton C++ sets neither delivery-failed nor undeliverable-here: it is as if released.
    void on_message(proton::delivery& d, proton::message& m) override {
        expect(m.body() == proton::value(0), "not the first");
        expect(m.delivery_count() == 0, "counted");
        d.modify();
        if (++seen == 3) finish();
        else d.receiver().add_credit(1);
    }

    int seen = 0;
};

class Rejected : public Scenario {
  public:
    Rejected() : Scenario("rejected does not come back", numbers(2)) {}

  private:
    void stored(proton::connection&) override { receive(1); }

    void on_message(proton::delivery& d, proton::message& m) override {
        if (m.body() == proton::value(0) && !d.settled() && seen++ == 0) {
            d.reject();
            d.receiver().add_credit(1);
        } else {
            expect(m.body() == proton::value(1), "came back");
            d.accept();
            finish();
        }
    }

    int seen = 0;
};

class Drained : public Scenario {
  public:
    Drained() : Scenario("drain gives what there is and is answered each time", numbers(3)) {}

  private:
    void stored(proton::connection&) override { receive(10).drain(); }

    void on_message(proton::delivery& d, proton::message&) override {
        d.accept();
        ++seen;
    }

    void on_receiver_drain_finish(proton::receiver& r) override {
        expect(seen == 3, "drained early");
        expect(r.credit() == 0, "credit left");
        if (++drains == 4) return finish();
        r.add_credit(drains);
        r.drain();
    }

    int seen = 0;
    int drains = 0;
};

class Browsed : public Scenario {
  public:
    Browsed() : Scenario("browsing takes nothing", numbers(3)) {}

  private:
    void stored(proton::connection&) override { browse(); }

    void browse() {
        proton::source_options copy;
        copy.distribution_mode(proton::source::COPY);
        receive(10, proton::receiver_options().source(copy)).drain();
    }

    void on_message(proton::delivery& d, proton::message& m) override {
        expect(m.body() == proton::value(seen++ % 3), "out of order");
        d.accept();
    }

    void on_receiver_drain_finish(proton::receiver& r) override {
        expect(seen == 3 * ++rounds, "saw " + std::to_string(seen));
        r.close();
        if (rounds == 3) finish();
        else if (rounds == 2) receive(10).drain();
        else browse();
    }

    int seen = 0;
    int rounds = 0;
};

class Replied : public Scenario {
  public:
    Replied() : Scenario("a reply comes through a dynamic queue and an anonymous sender", {}) {}

  private:
    void stored(proton::connection& c) override {
        c.open_receiver(queue);
        answers = c.open_sender("", proton::sender_options().target(proton::target_options().anonymous(true)));
        c.open_receiver("", proton::receiver_options().source(proton::source_options().dynamic(true)));
    }

    void on_receiver_open(proton::receiver& r) override {
        if (!r.source().dynamic()) return;
        reply_to = r.source().address();
        expect(!reply_to.empty(), "no address");
        connection.open_sender(queue);
    }

    void on_sendable(proton::sender& s) override {
        if (s.target().address() != queue || asked++ > 0) return;
        proton::message request("question");
        request.reply_to(reply_to);
        request.correlation_id("id");
        s.send(request);
    }

    void on_tracker_accept(proton::tracker&) override {}

    void on_message(proton::delivery& d, proton::message& m) override {
        if (d.receiver().source().address() == reply_to) {
            expect(m.body() == proton::value("answer"), "body");
            expect(m.correlation_id() == proton::message_id("id"), "correlation-id");
            return finish();
        }
        proton::message reply("answer");
        reply.to(m.reply_to());
        reply.correlation_id(m.correlation_id());
        answers.send(reply);
    }

    proton::sender answers;
    std::string reply_to;
    int asked = 0;
};

class Large : public Scenario {
  public:
    Large() : Scenario("large messages survive", {std::string(5 << 20, 'x'), proton::binary(std::string(3 << 20, '\0'))}) {}

  private:
    void stored(proton::connection&) override { receive(2); }

    void on_message(proton::delivery& d, proton::message& m) override {
        expect(m.body() == bodies[seen], "changed");
        d.accept();
        if (++seen == bodies.size()) finish();
    }

    std::size_t seen = 0;
};

class Kept : public Scenario {
  public:
    Kept() : Scenario("header, properties and annotations are kept", {}) {}

  private:
    void stored(proton::connection& c) override { c.open_sender(queue); }

    void on_sendable(proton::sender& s) override {
        if (sent++ > 0) return;
        proton::message m(std::vector<int>{1, 2, 3});
        m.id(proton::uuid::random());
        m.durable(true);
        m.priority(9);
        m.subject("subject");
        m.group_id("group");
        m.group_sequence(-1);
        m.creation_time(proton::timestamp(1700000000000));
        m.properties().put("decimal", proton::decimal64());
        m.properties().put("unsigned", uint64_t(-1));
        m.message_annotations().put(proton::symbol("x-opt-mine"), "kept");
        original = m;
        s.send(m);
    }

    void on_tracker_accept(proton::tracker&) override { receive(1); }

    void on_message(proton::delivery&, proton::message& m) override {
        expect(m.id() == original.id(), "id");
        expect(m.durable() && m.priority() == 9, "header");
        expect(m.subject() == "subject" && m.group_id() == "group", "properties");
        expect(m.group_sequence() == -1, "group-sequence");
        expect(m.creation_time() == original.creation_time(), "creation-time");
        expect(m.body() == original.body(), "body");
        for (const char* key : {"decimal", "unsigned"}) {
            expect(m.properties().get(key) == original.properties().get(key), key);
        }
        expect(m.message_annotations().get(proton::symbol("x-opt-mine")) == proton::value("kept"), "annotation");
        finish();
    }

    proton::message original;
    int sent = 0;
};

class Returned : public Scenario {
  public:
    Returned() : Scenario("what a closed receiver had not settled comes back in order", numbers(4)) {}

  private:
    void stored(proton::connection&) override { receive(4); }

    void on_message(proton::delivery& d, proton::message& m) override {
        const int expected[] = {0, 1, 2, 3, 0, 2, 3};
        expect(m.body() == proton::value(expected[seen]), "out of order");
        expect(m.delivery_count() == 0, "counted");
        if (seen == 1 || seen > 3) d.accept();
        if (++seen == 4) {
            d.receiver().close();
            receive(3);
        } else if (seen == 7) {
            finish();
        }
    }

    int seen = 0;
};

class Shared : public Scenario {
  public:
    Shared() : Scenario("two receivers share a queue", numbers(4)) {}

  private:
    void stored(proton::connection&) override {
        receive(2);
        receive(2);
    }

    void on_message(proton::delivery& d, proton::message&) override {
        d.accept();
        if (++seen == 4) finish();
    }

    int seen = 0;
};

} // namespace

int main(int count, char** arguments) {
    if (count != 2) {
        std::cerr << "usage: interop host:port" << std::endl;
        return 2;
    }
    std::vector<std::function<std::unique_ptr<Scenario>()>> all = {
        std::make_unique<OrderKept>, std::make_unique<Settled>,  std::make_unique<Released>,
        std::make_unique<Modified>,  std::make_unique<Rejected>, std::make_unique<Drained>,
        std::make_unique<Browsed>,   std::make_unique<Replied>,  std::make_unique<Large>,
        std::make_unique<Kept>,      std::make_unique<Returned>, std::make_unique<Shared>,
    };
    std::signal(SIGALRM, give_up);
    int passed = 0;
    int failed = 0;
    for (const auto& make : all) {
        std::unique_ptr<Scenario> scenario = make();
        try {
            scenario->run(arguments[1]);
            std::cout << "ok: " << scenario->name << std::endl;
            ++passed;
        } catch (const std::exception& error) {
            std::cout << "FAILED: " << scenario->name << ": " << error.what() << std::endl;
            ++failed;
        }
    }
    std::cout << "proton-cpp: " << passed << " passed, " << failed << " failed" << std::endl;
    return failed == 0 ? 0 : 1;
}
