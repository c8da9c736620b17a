// A value of any class derived from T: copies are whole, with members of their own (as C++26's
// std::polymorphic). Moved from, or made without a value, it holds none. T may be incomplete where only the
// holder is declared.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace signet {

template <class T>
class Polymorphic {
 public:
  Polymorphic() = default;
  template <class Derived, class = std::enable_if_t<std::is_base_of_v<T, Derived>>>
  Polymorphic(Derived value)
      : value_(std::make_shared<Derived>(std::move(value))), copy_([](const T& other) -> std::shared_ptr<T> {
          return std::make_shared<Derived>(static_cast<const Derived&>(other));
        }) {}
  Polymorphic(const Polymorphic& other)
      : value_(other.value_ ? other.copy_(*other.value_) : nullptr), copy_(other.copy_) {}
  Polymorphic(Polymorphic&&) noexcept = default;
  Polymorphic& operator=(Polymorphic other) noexcept {
    value_ = std::move(other.value_);
    copy_ = other.copy_;
    return *this;
  }

  T* operator->() { return value_.get(); }
  const T* operator->() const { return value_.get(); }

 private:
  std::shared_ptr<T> value_;  // never shared; its deleter needs no complete T
  std::shared_ptr<T> (*copy_)(const T&) = nullptr;
};

}  // namespace signet
