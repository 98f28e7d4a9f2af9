// What node n1 says to the coordinator: a stream of messages, each behind a byte that says what
// happens ('m' a message, 'w' a wait of as many tenths of seconds as the next byte says, 'c' the
// stream ends and the next begins) and two bytes of its length.
#include <optional>

#include "common/rpc/message_limits.h"
#include "common/wire/codec.h"
#include "tests/fuzz/cluster.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/wire.h"

namespace {

using namespace muster;

class Stream {
 public:
  void Reopen() {
    if (open_) cluster_.Handle(WorkerStreamClosed{session_});
    session_ = cluster_.NewSession();
    open_ = false;
  }

  void Say(std::string_view bytes) {
    std::optional<v1::WorkerMessage> message = fuzz::Decoded<v1::WorkerMessage>(bytes);
    if (!message) return;
    if (message->has_hello()) return SayHello(std::move(*message->mutable_hello()));
    if (message->has_log_chunk()) return (void)ApplyLimits(message->mutable_log_chunk());
    const Result<WorkerMessage> said = FromProto(*std::move(message));
    if (!said.ok() || !open_) return;
    const Result<WorkerMessage> again = FromProto(ToProto(*said));
    fuzz::Require(again.ok(), "what was understood can be sent on");
    cluster_.Handle(WorkerMessageReceived{session_, *said});
  }

  // The service lets a stream speak for its own node alone, and say Hello once.
  void SayHello(v1::Hello message) {
    const Result<Hello> hello = FromProto(std::move(message));
    if (!hello.ok() || open_ || hello->node.value != "n1") return;
    fuzz::Require(FromProto(ToProto(*hello)).ok(), "a Hello that was understood can be sent on");
    cluster_.Handle(WorkerHello{session_, *hello});
    open_ = true;
  }

  fuzz::Cluster& cluster() { return cluster_; }

 private:
  fuzz::Cluster cluster_;
  SessionId session_ = cluster_.session_of_n1();
  bool open_ = true;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(fuzz::TextOf(data, size));
  Stream stream;
  for (int events = 0; !input.empty() && events < 64; ++events) {
    switch (input.Byte()) {
      case 'w': stream.cluster().Wait(std::chrono::milliseconds(100) * input.Byte()); break;
      case 'c': stream.Reopen(); break;
      default: stream.Say(input.Piece());
    }
  }
  stream.cluster().ShowAll();
  return 0;
}
