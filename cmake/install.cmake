# Header, libraries, program, pkg-config and CMake package files.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(FILES include/gradwire.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/gradwire DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS gradwire_shared EXPORT gradwireTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS gradwire_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET gradwire)
  install(TARGETS gradwire RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

foreach(module ${GW_TRANSPORT_MODULES})
  install(TARGETS ${module} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/gradwire)
endforeach()

configure_file(cmake/gradwire.pc.in ${CMAKE_BINARY_DIR}/gradwire.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/gradwire.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set_target_properties(gradwire_shared PROPERTIES EXPORT_NAME gradwire)
install(EXPORT gradwireTargets NAMESPACE gradwire:: FILE gradwireConfig.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/gradwire)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/gradwireConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_BINARY_DIR}/gradwireConfigVersion.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/gradwire)

# The Python package, where Debian's Python looks: dist-packages below /usr, those of one version below /usr/local.
set(GW_PYTHON_SITE "" CACHE STRING "where the Python package is installed, below the prefix")
if(NOT GW_PYTHON_SITE)
  find_program(GW_PYTHON NAMES python3 PATHS /usr/bin NO_DEFAULT_PATH)
  set(GW_PYTHON_VERSION 3)
  if(GW_PYTHON AND NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr")
    execute_process(COMMAND ${GW_PYTHON} -c "import sys; print('%d.%d' % sys.version_info[:2], end='')"
      OUTPUT_VARIABLE GW_PYTHON_VERSION)
  endif()
  set(GW_PYTHON_SITE lib/python${GW_PYTHON_VERSION}/dist-packages)
endif()
install(DIRECTORY python/gradwire DESTINATION ${GW_PYTHON_SITE} FILES_MATCHING PATTERN "*.py" PATTERN "_c10d.so"
  PATTERN "__pycache__" EXCLUDE)
