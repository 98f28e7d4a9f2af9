#include "trainer/report/metrics_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "common/base/json.h"

namespace muster {
namespace {

std::string Clock(double seconds) {
  const auto whole = static_cast<long long>(seconds + 0.5);
  char text[32];
  if (whole >= 3600) {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60,
                  whole % 60);
  } else {
    std::snprintf(text, sizeof text, "%lld:%02lld", whole / 60, whole % 60);
  }
  return text;
}

// What a process killed in the middle of a line has left: its step was not saved and is done again.
Status CutTornLine(int fd, const std::string& path) {
  const off_t size = ::lseek(fd, 0, SEEK_END);
  off_t end = size;
  char last = 0;
  while (end > 0 && ::pread(fd, &last, 1, end - 1) == 1 && last != '\n') --end;
  if (end < size && ::ftruncate(fd, end) != 0) return ErrnoStatus(errno, "truncate " + path);
  return OkStatus();
}

// By layer; what each expert has is in experts.jsonl, or lines would be too long to be read fast.
nlohmann::ordered_json LoadJson(const ExpertLoad& load) {
  nlohmann::ordered_json json = {{"layers", load.layers}};
  for (const LayerLoad& layer : load.of_layer) {
    json["largest_share"].push_back(layer.largest_share);
    json["smallest_share"].push_back(layer.smallest_share);
    json["entropy"].push_back(layer.entropy);
    json["idle"].push_back(layer.idle);
  }
  return json;
}

}  // namespace

std::string MetricsJson(const StepMetrics& m) {
  char chain[20];
  std::snprintf(chain, sizeof chain, "%016llx", static_cast<unsigned long long>(m.sample_chain));
  nlohmann::ordered_json json = {
      {"step", m.step},
      {"loss", m.loss},
      {"grad_norm", m.grad_norm},
      {"lr", m.lr},
      {"tokens", m.tokens},
      {"samples", m.samples},
      {"step_seconds", m.step_seconds},
      {"tokens_per_second", m.tokens_per_second},
      {"mfu", m.mfu > 0 ? nlohmann::ordered_json(m.mfu) : nlohmann::ordered_json()},
      {"generation", m.generation},
      {"world_size", m.world_size},
      {"epoch", m.epoch},
      {"sample_chain", chain},
      {"skipped", m.skipped},
      {"loss_scale", m.loss_scale},
      {"rss_bytes", m.rss_bytes},
      {"device_bytes", m.device_capacity_bytes > 0 ? nlohmann::ordered_json(m.device_bytes)
                                                   : nlohmann::ordered_json()},
  };
  if (m.experts) json["experts"] = LoadJson(*m.experts);
  return json.dump();
}

std::string ProgressLine(const StepMetrics& m, double seconds_per_step) {
  const int digits = static_cast<int>(std::to_string(m.max_steps).size());
  const double left = static_cast<double>(m.max_steps - m.step) * seconds_per_step;
  char mfu[24] = "";
  if (m.mfu > 0) std::snprintf(mfu, sizeof mfu, "  MFU %.1f %%", 100 * m.mfu);
  const std::uint64_t memory = m.device_capacity_bytes > 0 ? m.device_bytes : m.rss_bytes;
  char text[240];
  std::snprintf(
      text, sizeof text,
      "step %*lld/%lld  loss %8.4f  grad %8.3f  lr %.2e  %8.0f tok/s%s  %5.2f GiB  ETA %s%s",
      digits, static_cast<long long>(m.step), static_cast<long long>(m.max_steps), m.loss,
      m.grad_norm, m.lr, m.tokens_per_second, mfu, static_cast<double>(memory) / (1 << 30),
      Clock(left).c_str(), m.skipped ? "  skipped" : "");
  return text;
}

Result<MetricsLog> MetricsLog::Open(const std::string& path, MetricsLock lock) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644));
  if (!fd.valid()) return ErrnoStatus(errno, "open " + path);
  // A file system without locks refuses with another error, and there no process is kept out.
  if (lock == MetricsLock::kExclusive && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 &&
      errno == EWOULDBLOCK)
    return Unavailable(path + " is being written by another process: two runs in one " +
                       "train.output.dir would overwrite each other's checkpoints");
  MUSTER_RETURN_IF_ERROR(CutTornLine(fd.get(), path));
  return MetricsLog(path, std::move(fd));
}

Status MetricsLog::AppendLine(const std::string& json) {
  const std::string line = json + "\n";
  const ssize_t written = ::write(fd_.get(), line.data(), line.size());
  if (written < 0) return ErrnoStatus(errno, "write " + path_);
  if (static_cast<std::size_t>(written) != line.size()) {
    return ResourceExhausted("the disk is full: " + path_);
  }
  return OkStatus();
}

}  // namespace muster
