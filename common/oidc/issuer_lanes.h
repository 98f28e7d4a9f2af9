// IssuerLanes: one thread's worth of work for each issuer: what needs its documents, keys or
// answers waits for no other issuer that is slow or away.
//
// Any thread may submit. Works run on lanes' threads, those of one issuer one after the other, and
// block for its answers. Destroying it, after Cancel, waits for the work that is under way.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "common/http/http_client.h"
#include "common/oidc/issuer.h"
#include "common/runtime/worker_lanes.h"

namespace muster {

class IssuerLanes {
 public:
  static constexpr std::size_t kMaxOfAnIssuer = 64;

  // `ca_pem`: authorities of issuers besides the system's.
  explicit IssuerLanes(std::string ca_pem);
  ~IssuerLanes();
  IssuerLanes(const IssuerLanes&) = delete;
  IssuerLanes& operator=(const IssuerLanes&) = delete;

  const std::string& ca_pem() const { return ca_pem_; }

  // What the work of one issuer uses, kept from one work to the next.
  class Issuer {
   public:
    Issuer(const std::string& url, IssuerExchange exchange);

    TokenVerifier& verifier() { return verifier_; }
    Result<IssuerAnswer> Post(const std::string& url, const std::string& form);

   private:
    const IssuerExchange exchange_;
    const std::unique_ptr<HttpClient> client_ = MakeHttpClient();
    TokenVerifier verifier_;
  };
  using Work = std::function<void(Issuer& issuer)>;

  // kResourceExhausted: too much waits for the issuer.
  Status Submit(const std::string& issuer, Work work);
  // Ends the fetches that are under way, and those to come.
  void Cancel() { cancelled_.store(true); }

 private:
  const std::string ca_pem_;
  std::atomic<bool> cancelled_ = false;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Issuer>> issuers_;  // by URL
  WorkerLanes lanes_{"login", /*max_lanes=*/16, kMaxOfAnIssuer};
};

}  // namespace muster
