#include "trainer/checkpoint/supervisor.h"

#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/control_pipe/trainer_protocol.h"

namespace muster {
namespace {

using nlohmann::json;

// Messages of other libraries can be long; a packet has a bound and the story needs the beginning.
constexpr std::size_t kMaxText = 4096;

std::string Clipped(std::string_view text) {
  return text.size() <= kMaxText ? std::string(text)
                                 : std::string(text.substr(0, kMaxText)) + "...";
}

std::string Dump(const json& message) {
  return message.dump(-1, ' ', false, json::error_handler_t::replace);
}

void EndProcess() {
  std::fputs("the guardian of this rank is gone; ending\n", stderr);
  _exit(kExitFailure);
}

}  // namespace

Supervisor::Supervisor(UniqueFd control, std::function<void()> on_lost)
    : socket_(std::move(control)),
      attached_(socket_.valid()),
      on_lost_(on_lost ? std::move(on_lost) : EndProcess) {
  if (attached_) reader_ = std::thread([this] { ReadMessages(); });
}

Supervisor::~Supervisor() {
  if (!attached_) return;
  closing_ = true;
  // Wakes the reader. What was sent stays readable for the guardian.
  ::shutdown(socket_.fd(), SHUT_RD);
  reader_.join();
}

void Supervisor::ReadMessages() {
  for (;;) {
    const auto packet = socket_.Receive(Deadline::After(std::chrono::hours(1)));
    if (closing_) return;
    if (packet.ok()) {
      HandleMessage(packet->data);
    } else if (packet.status().code() != StatusCode::kDeadlineExceeded) {
      on_lost_();
      return;
    }
  }
}

// What is not understood is ignored: a newer guardian may say more.
void Supervisor::HandleMessage(std::string_view text) {
  const json message = json::parse(text, nullptr, false);
  if (!message.is_object()) return;
  const auto type = message.find("type");
  if (type == message.end() || *type != "stop") return;
  const auto reason = message.find("reason");
  {
    std::lock_guard lock(reason_mutex_);
    if (reason != message.end() && reason->is_string()) stop_reason_ = reason->get<std::string>();
  }
  stop_requested_.store(true, std::memory_order_release);
}

std::string Supervisor::stop_reason() const {
  std::lock_guard lock(reason_mutex_);
  return stop_reason_;
}

// A report that cannot be sent is not this rank's problem: the guardian is gone, and the reader
// ends the process.
void Supervisor::Send(const std::string& message) {
  if (!attached_) return;
  std::lock_guard lock(send_mutex_);
  (void)socket_.Send(message);
}

void Supervisor::Formed() { Send(Dump({{"type", "formed"}})); }

void Supervisor::Resumed(Step step, const std::vector<RejectedCheckpoint>& rejected) {
  json list = json::array();
  for (const RejectedCheckpoint& each : rejected) {
    list.push_back({{"directory", each.directory}, {"reason", Clipped(each.reason)}});
  }
  Send(Dump({{"type", "resumed"}, {"step", step}, {"rejected", std::move(list)}}));
}

void Supervisor::FirstStep(Step step) { Send(Dump({{"type", "first_step"}, {"step", step}})); }

void Supervisor::ShardWritten(Step step, const std::string& directory, const ShardRecord& shard) {
  Send(Dump({{"type", "shard_written"},
             {"step", step},
             {"directory", directory},
             {"shard",
              {{"rank", shard.rank},
               {"file", shard.file},
               {"bytes", shard.bytes},
               {"checksum", shard.checksum}}}}));
}

void Supervisor::CheckpointFailed(Step step, const std::string& reason) {
  Send(Dump({{"type", "checkpoint_failed"}, {"step", step}, {"reason", Clipped(reason)}}));
}

void Supervisor::Error(std::string_view kind, std::string_view message, Step step) {
  Send(Dump({{"type", "error"}, {"kind", kind}, {"message", Clipped(message)}, {"step", step}}));
}

void Supervisor::Note(std::string_view severity, std::string_view message) {
  Send(Dump({{"type", "note"}, {"severity", severity}, {"message", Clipped(message)}}));
}

void Supervisor::Finished(Step step, const std::string& model_dir) {
  Send(Dump({{"type", "finished"}, {"step", step}, {"model_dir", model_dir}}));
}

}  // namespace muster
