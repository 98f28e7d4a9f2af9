#include "common/runtime/event_loop.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <utility>

#include "common/base/ignored_signals.h"

namespace muster {

namespace asio = boost::asio;

struct EventLoop::Impl {
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
  asio::signal_set signals{context};

  void WaitForSignal(std::function<void(int)> handler) {
    signals.async_wait([this, handler](boost::system::error_code error, int signal) {
      if (error) return;
      handler(signal);
      WaitForSignal(handler);
    });
  }
};

EventLoop::EventLoop() : impl_(std::make_unique<Impl>()) {}
EventLoop::~EventLoop() = default;

void EventLoop::Run() { impl_->context.run(); }

void EventLoop::Stop() {
  // Through the queue, so that what was posted before runs first.
  Post([this] {
    impl_->signals.cancel();
    impl_->work.reset();
    impl_->context.stop();
  });
}

void EventLoop::Post(std::function<void()> function) {
  asio::post(impl_->context, std::move(function));
}

void EventLoop::OnTerminationSignal(std::function<void(int)> handler) {
  impl_->signals.add(SIGINT);
  if (!IsIgnored(SIGTERM)) impl_->signals.add(SIGTERM);
  impl_->WaitForSignal(std::move(handler));
}

asio::io_context& EventLoop::context() { return impl_->context; }

struct Timer::Impl {
  explicit Impl(EventLoop& loop) : timer(loop.context()) {}
  asio::steady_timer timer;
  // A completion that was already queued when the timer was started again or cancelled must not
  // run; the number distinguishes it.
  std::shared_ptr<std::uint64_t> epoch = std::make_shared<std::uint64_t>(0);
};

Timer::Timer(EventLoop& loop) : impl_(std::make_unique<Impl>(loop)) {}
Timer::~Timer() { Cancel(); }

void Timer::Start(Duration delay, std::function<void()> function) {
  StartAt(std::chrono::steady_clock::now() + delay, std::move(function));
}

void Timer::StartAt(TimePoint when, std::function<void()> function) {
  const std::uint64_t mine = ++*impl_->epoch;
  impl_->timer.expires_at(when);
  impl_->timer.async_wait([epoch = impl_->epoch, mine,
                           function = std::move(function)](boost::system::error_code error) {
    if (!error && *epoch == mine) function();
  });
}

void Timer::Cancel() {
  ++*impl_->epoch;
  impl_->timer.cancel();
}

struct ReadWatch::Impl : std::enable_shared_from_this<Impl> {
  Impl(EventLoop& loop, int fd, std::function<void()> call)
      : descriptor(loop.context(), fd), on_readable(std::move(call)) {}

  void Wait() {
    descriptor.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                          [self = shared_from_this()](boost::system::error_code error) {
                            if (error || self->ended) return;
                            self->on_readable();
                            if (!self->ended) self->Wait();
                          });
  }

  boost::asio::posix::stream_descriptor descriptor;
  const std::function<void()> on_readable;
  bool ended = false;
};

ReadWatch::ReadWatch(EventLoop& loop, int fd, std::function<void()> on_readable)
    : impl_(std::make_shared<Impl>(loop, fd, std::move(on_readable))) {
  impl_->Wait();
}

ReadWatch::~ReadWatch() {
  impl_->ended = true;
  impl_->descriptor.release();
}

}  // namespace muster
