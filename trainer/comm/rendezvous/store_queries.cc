#include "trainer/comm/rendezvous/store_queries.h"

#include <cstring>
#include <utility>

#include "trainer/comm/rendezvous/store_protocol.h"

namespace muster {
namespace {

constexpr std::uint64_t kLongestText = std::uint64_t{16} << 20;
constexpr std::uint64_t kMostKeys = 1 << 20;

}  // namespace

// Reads arguments from the front of what has come so far.
class StoreQueries::Reader {
 public:
  explicit Reader(std::string_view in) : in_(in) {}

  template <typename T>
  T Number() {
    T value{};
    if (in_.size() - at_ < sizeof(T)) {
      short_ = true;
    } else if (!short_) {
      std::memcpy(&value, in_.data() + at_, sizeof(T));
      at_ += sizeof(T);
    }
    return value;
  }
  std::string Text() {
    const auto bytes = Number<std::uint64_t>();
    if (bytes > kLongestText) broken_ = true;
    if (broken_ || short_ || in_.size() - at_ < bytes) {
      short_ = true;
      return {};
    }
    at_ += bytes;
    return std::string(in_.substr(at_ - bytes, bytes));
  }
  std::vector<std::string> Keys() {
    const auto count = Number<std::uint64_t>();
    if (count > kMostKeys) broken_ = true;
    std::vector<std::string> keys;
    for (std::uint64_t i = 0; i < count && !short_ && !broken_; ++i) keys.push_back(Text());
    return keys;
  }
  // More must come before the query is whole; none can make it one.
  bool is_short() const { return short_; }
  bool is_broken() const { return broken_; }
  bool empty() const { return at_ == in_.size(); }
  std::size_t at() const { return at_; }

 private:
  const std::string_view in_;
  std::size_t at_ = 0;
  bool short_ = false;
  bool broken_ = false;
};

bool StoreQueries::Take(int client, std::string& in, Session& session) {
  Reader reader(in);
  std::size_t taken = 0;
  while (!reader.empty()) {
    const bool good = TakeOne(client, reader, session);
    if (reader.is_broken()) return false;
    if (reader.is_short()) break;
    if (!good) return false;
    taken = reader.at();
  }
  in.erase(0, taken);
  return true;
}

bool StoreQueries::TakeOne(int client, Reader& reader, Session& session) {
  const auto query = static_cast<StoreQuery>(reader.Number<std::uint8_t>());
  if (query == StoreQuery::kValidate) {
    (void)reader.Number<std::uint32_t>();
  } else if (query == StoreQuery::kSet) {
    const std::string key = reader.Text();
    std::string value = reader.Text();
    if (!reader.is_short()) Set(key, std::move(value));
  } else if (query == StoreQuery::kGet) {
    const std::string key = reader.Text();
    return reader.is_short() || Answer({key}, session);
  } else if (query == StoreQuery::kCheck) {
    const std::vector<std::string> keys = reader.Keys();
    if (reader.is_short()) return true;
    bool all = true;
    for (const std::string& key : keys) all = all && words_.contains(key);
    session.out += static_cast<char>(all ? kStoreReady : kStoreNotReady);
  } else if (query == StoreQuery::kWait) {
    const std::vector<std::string> keys = reader.Keys();
    if (!reader.is_short()) Wait(client, keys, session);
  } else if (query == StoreQuery::kMultiGet) {
    const std::vector<std::string> keys = reader.Keys();
    return reader.is_short() || Answer(keys, session);
  } else if (query == StoreQuery::kCancelWait) {
    Forget(client);
    session.waiting = false;
    session.missing.clear();
    session.out += kStoreWaitCancelled;
  } else {
    return false;
  }
  return true;
}

bool StoreQueries::Answer(const std::vector<std::string>& keys, Session& session) const {
  for (const std::string& key : keys) {
    const auto word = words_.find(key);
    if (word == words_.end()) return false;
    AppendStoreText(session.out, word->second);
  }
  return true;
}

void StoreQueries::Set(const std::string& key, std::string value) {
  words_[key] = std::move(value);
  const auto awaited = awaited_.extract(key);
  if (awaited.empty()) return;
  for (const int client : awaited.mapped()) {
    Session& session = *waiting_.at(client);
    session.missing.erase(key);
    if (!session.missing.empty()) continue;
    session.waiting = false;
    session.out += kStoreStopWaiting;
    waiting_.erase(client);
    answered_.push_back(client);
  }
}

void StoreQueries::Wait(int client, const std::vector<std::string>& keys, Session& session) {
  for (const std::string& key : keys)
    if (!words_.contains(key)) session.missing.insert(key);
  if (session.missing.empty()) {
    session.out += kStoreStopWaiting;
    return;
  }
  session.waiting = true;
  waiting_[client] = &session;
  for (const std::string& key : session.missing) awaited_[key].insert(client);
}

std::vector<int> StoreQueries::TakeAnswered() { return std::exchange(answered_, {}); }

void StoreQueries::Forget(int client) {
  const auto waiting = waiting_.extract(client);
  if (waiting.empty()) return;
  for (const std::string& key : waiting.mapped()->missing) {
    const auto awaited = awaited_.find(key);
    if (awaited == awaited_.end()) continue;
    awaited->second.erase(client);
    if (awaited->second.empty()) awaited_.erase(awaited);
  }
}

}  // namespace muster
