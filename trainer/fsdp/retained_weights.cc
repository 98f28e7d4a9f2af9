#include "trainer/fsdp/retained_weights.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <set>

namespace muster {
namespace {

constexpr std::string_view kPrefix = "frozen-";

std::string NameOf(std::uint64_t content) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(content));
  return std::string(kPrefix) + digits;
}

}  // namespace

bool RetainedWeights::IsName(std::string_view name) { return name.starts_with(kPrefix); }

void RetainedWeights::Add(HeldSegment held) { files_[held.name] = std::move(held.fd); }

const RetainedWeights::DeviceMemory* RetainedWeights::device(std::uint64_t content) const {
  const auto found = devices_.find(content);
  return found == devices_.end() ? nullptr : &found->second;
}

int RetainedWeights::file(std::uint64_t content) const {
  const auto found = files_.find(NameOf(content));
  return found == files_.end() ? -1 : found->second.get();
}

void RetainedWeights::Keep(std::uint64_t content, DeviceMemory memory) {
  devices_.insert_or_assign(content, std::move(memory));
}

Status RetainedWeights::Keep(std::uint64_t content, int file, bool hold) {
  const std::string name = NameOf(content);
  if (files_.contains(name)) return OkStatus();
  UniqueFd own(::fcntl(file, F_DUPFD_CLOEXEC, 0));
  if (!own.valid()) return ErrnoStatus(errno, "another descriptor of frozen weights");
  if (hold && guardian_.hold) guardian_.hold(name, own.get());
  files_.emplace(name, std::move(own));
  return OkStatus();
}

void RetainedWeights::KeepOnlyDevice(std::uint64_t content) {
  std::erase_if(devices_, [content](const auto& each) { return each.first != content; });
}

void RetainedWeights::KeepOnlyFiles(const std::vector<std::uint64_t>& contents) {
  std::set<std::string> wanted;
  for (const std::uint64_t content : contents) wanted.insert(NameOf(content));
  std::erase_if(files_, [&](const auto& each) {
    if (wanted.contains(each.first)) return false;
    if (guardian_.drop) guardian_.drop(each.first);
    return true;
  });
}

std::vector<std::string> RetainedWeights::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : files_) names.push_back(name);
  return names;
}

}  // namespace muster
