// StoreClient: a client of the c10d TCPStore, or of our GangStore, over a socket of our own.
//
// c10d's client waits inside blocking calls that nothing can end, also while its server is stopped.
// This one speaks the same protocol (set, check, get, wait), and every wait of it ends at its
// deadline or when it is interrupted. Keys are those that c10d's clients see.
//
// Used by one thread. Errors: kCancelled when interrupted, kDeadlineExceeded, kUnavailable. After
// an error the connection is of no more use: it may hold half an answer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/base/unique_fd.h"
#include "trainer/comm/interrupt.h"

namespace muster {

// What a GangStore asks for (gang_store.h).
struct RendezvousCredentials {
  std::string token;  // of the generation; empty: no proof is asked for
  int rank = 0;       // that asks
};

class StoreClient {
 public:
  // `socket` is connected and non-blocking; `name` stands before messages, as "store at ...".
  // Returns when the server has answered, and has shown that it knows the token: kUnavailable where
  // it does not, kAborted where the connection was closed before: in a crowd of unauthenticated
  // peers that may happen to a rank, and the next connection be heard. `interrupt` outlives the
  // client.
  static Result<std::unique_ptr<StoreClient>> Open(UniqueFd socket, std::string name,
                                                   const Interrupt& interrupt, Deadline deadline,
                                                   const RendezvousCredentials& pass = {});

  Status Set(const std::string& key, const std::string& value, Deadline deadline);
  Result<bool> Has(const std::string& key, Deadline deadline);
  // Precondition: the key is there.
  Result<std::string> Get(const std::string& key, Deadline deadline);
  // All of them by one query, in their order. Precondition: they are there.
  Result<std::vector<std::string>> GetAll(const std::vector<std::string>& keys, Deadline deadline);
  // Until all keys are there: one query, which the server answers when they are. False: `until`
  // came first. A server that does not say so within `timeout` is an error.
  Result<bool> Wait(const std::vector<std::string>& keys, Deadline until, Duration timeout);

 private:
  StoreClient(UniqueFd socket, std::string name, const Interrupt& interrupt)
      : socket_(std::move(socket)), name_(std::move(name)), interrupt_(interrupt) {}
  Status Authenticate(const RendezvousCredentials& pass, Deadline deadline);
  Status Send(const std::string& message, Deadline deadline);
  Status Receive(void* data, std::size_t bytes, Deadline deadline);
  Result<std::string> ReceiveText(Deadline deadline);
  Result<bool> EndWait(Deadline deadline);
  Status Named(const Status& status) const { return status.WithContext(name_); }

  const UniqueFd socket_;
  const std::string name_;
  const Interrupt& interrupt_;
};

}  // namespace muster
