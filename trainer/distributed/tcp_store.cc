#include "trainer/distributed/tcp_store.h"

#include <dlfcn.h>
#include <netdb.h>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <exception>
#include <utility>

// c10d looks up the name of every peer that it connects to or accepts, only to mention it in a log
// line. Where no name server answers, each look-up blocks for seconds, in the server for all ranks.
// This definition stands before libc's for the whole process and asks nobody.
extern "C" int getnameinfo(const sockaddr* address, socklen_t length, char* host,
                           socklen_t host_bytes, char* service, socklen_t service_bytes,
                           int flags) {
  static const auto libc =
      reinterpret_cast<decltype(&::getnameinfo)>(::dlsym(RTLD_NEXT, "getnameinfo"));
  return libc(address, length, host, host_bytes, service, service_bytes,
              flags | NI_NUMERICHOST | NI_NUMERICSERV);
}

namespace muster {
namespace {

// c10d's messages carry a stack trace after the first line.
std::string FirstLine(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

template <typename Call>
Status Guarded(const std::string& what, Call call) {
  try {
    call();
    return OkStatus();
  } catch (const std::exception& error) {
    return Unavailable(what + ": " + FirstLine(error));
  } catch (...) {
    return Unavailable(what + ": unknown error");
  }
}

class TcpStoreSession final : public StoreSession {
 public:
  TcpStoreSession(c10::intrusive_ptr<c10d::TCPStore> store, std::string name)
      : store_(std::move(store)), name_(std::move(name)) {}

  Status Set(const std::string& key, const std::string& value) override {
    return Guarded(
        name_, [&] { store_->set(key, std::vector<std::uint8_t>(value.begin(), value.end())); });
  }

  Result<bool> Has(const std::string& key) override {
    bool found = false;
    MUSTER_RETURN_IF_ERROR(Guarded(name_, [&] { found = store_->check({key}); }));
    return found;
  }

  Result<std::string> Get(const std::string& key) override {
    std::string value;
    MUSTER_RETURN_IF_ERROR(Guarded(name_, [&] {
      const std::vector<std::uint8_t> bytes = store_->get(key);
      value.assign(bytes.begin(), bytes.end());
    }));
    return value;
  }

 private:
  const c10::intrusive_ptr<c10d::TCPStore> store_;
  const std::string name_;
};

}  // namespace

Result<std::unique_ptr<StoreSession>> StoreSession::Open(StoreEndpoint endpoint,
                                                         Deadline deadline) {
  const std::string name = "store at " + endpoint.address + ":" + std::to_string(endpoint.port);
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(endpoint.port);
  options.isServer = endpoint.serve || endpoint.listen_fd.valid();
  options.waitWorkers = false;
  // c10d takes no time-out below a few milliseconds for its own handshake.
  options.timeout = std::max(deadline.RemainingMillis(), std::chrono::milliseconds(100));
  // The server closes the descriptor; so it does when it fails.
  if (endpoint.listen_fd.valid()) options.masterListenFd = endpoint.listen_fd.release();
  c10::intrusive_ptr<c10d::TCPStore> store;
  MUSTER_RETURN_IF_ERROR(Guarded(
      name, [&] { store = c10::make_intrusive<c10d::TCPStore>(endpoint.address, options); }));
  return std::unique_ptr<StoreSession>(std::make_unique<TcpStoreSession>(std::move(store), name));
}

}  // namespace muster
