// The parts of Boost.Asio and Boost.Beast that are no templates, compiled once and not in each
// source that includes them (BOOST_ASIO_SEPARATE_COMPILATION in CMakeLists.txt).
#include <boost/asio/impl/src.hpp>
#include <boost/asio/ssl/impl/src.hpp>
#include <boost/beast/src.hpp>
