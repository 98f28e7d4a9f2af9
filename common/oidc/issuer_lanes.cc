#include "common/oidc/issuer_lanes.h"

#include <utility>

namespace muster {
namespace {

// Issuers that no user file lists any more go once there are so many.
constexpr std::size_t kMostIssuers = 16;

}  // namespace

IssuerLanes::Issuer::Issuer(const std::string& url, IssuerExchange exchange)
    : exchange_(std::move(exchange)), verifier_(url, [this](const std::string& document) {
        return FetchDocument(*client_, exchange_, document);
      }) {}

Result<IssuerAnswer> IssuerLanes::Issuer::Post(const std::string& url, const std::string& form) {
  return AskIssuer(*client_, exchange_, url, form);
}

IssuerLanes::IssuerLanes(std::string ca_pem) : ca_pem_(std::move(ca_pem)) {}

IssuerLanes::~IssuerLanes() { Cancel(); }

Status IssuerLanes::Submit(const std::string& issuer, Work work) {
  std::shared_ptr<Issuer> kept;
  {
    const std::lock_guard lock(mutex_);
    if (issuers_.size() >= kMostIssuers && !issuers_.contains(issuer)) issuers_.clear();
    std::shared_ptr<Issuer>& entry = issuers_[issuer];
    if (!entry)
      entry = std::make_shared<Issuer>(issuer,
                                       IssuerExchange{.ca_pem = ca_pem_, .cancelled = &cancelled_});
    kept = entry;
  }
  if (lanes_.TrySubmit(issuer, [kept, work = std::move(work)] { work(*kept); })) return OkStatus();
  return ResourceExhausted("too many log in at " + issuer + " at once; try again later");
}

}  // namespace muster
