#include "trainer/comm/rendezvous/store_client.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "trainer/comm/rendezvous/gang_store.h"
#include "trainer/comm/rendezvous/peer_proof.h"
#include "trainer/comm/rendezvous/store_protocol.h"

namespace muster {
namespace {

// c10d puts this before every key that it is given.
constexpr char kKeyPrefix[] = "/";
constexpr std::uint64_t kLongestValue = std::uint64_t{64} << 20;

template <typename T>
void Append(std::string* message, T value) {
  message->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::string Begin(StoreQuery query) { return std::string(1, static_cast<char>(query)); }

std::string KeysQuery(StoreQuery query, const std::vector<std::string>& keys) {
  std::string message = Begin(query);
  Append(&message, static_cast<std::uint64_t>(keys.size()));
  for (const std::string& key : keys) AppendStoreText(message, kKeyPrefix + key);
  return message;
}

// A connection that ends before the first answer may have been one too many for the store.
Status AtTheDoor(const RendezvousCredentials& pass, const Status& status) {
  const bool closed = !pass.token.empty() && status.code() == StatusCode::kUnavailable;
  return closed ? Aborted(status.message()) : status;
}

}  // namespace

Result<std::unique_ptr<StoreClient>> StoreClient::Open(UniqueFd socket, std::string name,
                                                       const Interrupt& interrupt,
                                                       Deadline deadline,
                                                       const RendezvousCredentials& pass) {
  std::unique_ptr<StoreClient> client(
      new StoreClient(std::move(socket), std::move(name), interrupt));
  if (!pass.token.empty()) {
    if (Status passed = client->Authenticate(pass, deadline); !passed.ok())
      return client->Named(passed);
  }
  std::string hello = Begin(StoreQuery::kValidate);
  Append(&hello, kStoreValidateWord);
  if (Status sent = AtTheDoor(pass, client->Send(hello, deadline)); !sent.ok())
    return client->Named(sent);
  // The server does not answer that; any query shows whether a process serves the socket.
  MUSTER_RETURN_IF_ERROR(AtTheDoor(pass, client->Has("muster/hello", deadline).status()));
  return client;
}

Status StoreClient::Authenticate(const RendezvousCredentials& pass, Deadline deadline) {
  const std::string own = Nonce();
  std::string hello(kAuthenticatedGreeting);
  Append(&hello, static_cast<std::uint32_t>(pass.rank));
  hello += own;
  MUSTER_RETURN_IF_ERROR(AtTheDoor(pass, Send(hello, deadline)));
  std::string answer(kNonceBytes + kProofBytes, '\0');
  MUSTER_RETURN_IF_ERROR(AtTheDoor(pass, Receive(answer.data(), answer.size(), deadline)));
  const std::string nonces = own + answer.substr(0, kNonceBytes);
  const std::string proof = answer.substr(kNonceBytes);
  if (!SameProof(proof, PeerProof(pass.token, kStoreServes, 0, pass.rank, nonces)))
    return Unavailable("who serves there does not know this generation's token");
  return AtTheDoor(pass, Send(PeerProof(pass.token, kStoreAsks, pass.rank, 0, nonces), deadline));
}

Status StoreClient::Send(const std::string& message, Deadline deadline) {
  std::size_t at = 0;
  while (at < message.size()) {
    const ssize_t n = ::send(socket_.get(), message.data() + at, message.size() - at, MSG_NOSIGNAL);
    if (n > 0) {
      at += static_cast<std::size_t>(n);
    } else if (errno == EAGAIN) {
      MUSTER_RETURN_IF_ERROR(interrupt_.AwaitReady(socket_.get(), POLLOUT, deadline));
    } else if (errno != EINTR) {
      return Unavailable(std::string("sending failed: ") + std::strerror(errno));
    }
  }
  return OkStatus();
}

Status StoreClient::Receive(void* data, std::size_t bytes, Deadline deadline) {
  auto* to = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::recv(socket_.get(), to, bytes, 0);
    if (n > 0) {
      to += n;
      bytes -= static_cast<std::size_t>(n);
    } else if (n == 0) {
      return Unavailable("the server has closed the connection");
    } else if (errno == EAGAIN) {
      MUSTER_RETURN_IF_ERROR(interrupt_.AwaitReady(socket_.get(), POLLIN, deadline));
    } else if (errno != EINTR) {
      return Unavailable(std::string("receiving failed: ") + std::strerror(errno));
    }
  }
  return OkStatus();
}

Status StoreClient::Set(const std::string& key, const std::string& value, Deadline deadline) {
  std::string message = Begin(StoreQuery::kSet);
  AppendStoreText(message, kKeyPrefix + key);
  AppendStoreText(message, value);
  return Named(Send(message, deadline));
}

Result<bool> StoreClient::Has(const std::string& key, Deadline deadline) {
  std::uint8_t answer = 0;
  Status status = Send(KeysQuery(StoreQuery::kCheck, {key}), deadline);
  if (status.ok()) status = Receive(&answer, sizeof(answer), deadline);
  if (!status.ok()) return Named(status);
  return answer == kStoreReady;
}

Result<std::string> StoreClient::ReceiveText(Deadline deadline) {
  std::uint64_t bytes = 0;
  MUSTER_RETURN_IF_ERROR(Receive(&bytes, sizeof(bytes), deadline));
  if (bytes > kLongestValue) return Internal("the server sent a broken answer");
  std::string value(bytes, '\0');
  MUSTER_RETURN_IF_ERROR(Receive(value.data(), value.size(), deadline));
  return value;
}

Result<std::string> StoreClient::Get(const std::string& key, Deadline deadline) {
  std::string message = Begin(StoreQuery::kGet);
  AppendStoreText(message, kKeyPrefix + key);
  if (Status sent = Send(message, deadline); !sent.ok()) return Named(sent);
  Result<std::string> value = ReceiveText(deadline);
  if (!value.ok()) return Named(value.status());
  return value;
}

Result<std::vector<std::string>> StoreClient::GetAll(const std::vector<std::string>& keys,
                                                     Deadline deadline) {
  if (Status sent = Send(KeysQuery(StoreQuery::kMultiGet, keys), deadline); !sent.ok()) {
    return Named(sent);
  }
  std::vector<std::string> values;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    Result<std::string> value = ReceiveText(deadline);
    if (!value.ok()) return Named(value.status());
    values.push_back(*std::move(value));
  }
  return values;
}

Result<bool> StoreClient::Wait(const std::vector<std::string>& keys, Deadline until,
                               Duration timeout) {
  Status status = Send(KeysQuery(StoreQuery::kWait, keys), Deadline::After(timeout));
  std::uint8_t answer = kStoreWaitCancelled;
  if (status.ok()) status = Receive(&answer, sizeof(answer), until);
  if (status.code() == StatusCode::kDeadlineExceeded) return EndWait(Deadline::After(timeout));
  if (status.ok() && answer != kStoreStopWaiting)
    status = Internal("the server sent a broken answer");
  if (!status.ok()) return Named(status);
  return true;
}

// The server says in any case that the wait is cancelled, and before that, where the two crossed,
// that it was over.
Result<bool> StoreClient::EndWait(Deadline deadline) {
  Status status = Send(Begin(StoreQuery::kCancelWait), deadline);
  std::uint8_t answer = kStoreWaitCancelled;
  if (status.ok()) status = Receive(&answer, sizeof(answer), deadline);
  const bool came = answer == kStoreStopWaiting;
  if (status.ok() && came) status = Receive(&answer, sizeof(answer), deadline);
  if (status.ok() && answer != kStoreWaitCancelled)
    status = Internal("the server sent a broken answer");
  if (!status.ok()) return Named(status);
  return came;
}

}  // namespace muster
