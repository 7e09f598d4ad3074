# Debian packages by CPack (`make deb`): libgradwire1, libgradwire-dev, gradwire, python3-gradwire, and one for each module
# of a transport (libgradwire1-mpi-openmpi). dpkg-shlibdeps finds what each depends on. Libraries that are loaded at run
# time are only suggested: without one of them gradwire says what is missing.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "The gradwire authors <gradwire@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "communication stack of distributed deep learning")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_COMPONENTS_ALL library devel program python ${GW_TRANSPORT_MODULES})
set(same "(= ${PROJECT_VERSION})")

# gw_package(COMPONENT NAME ABOUT): the package of an install component, with its licence.
macro(gw_package component name about)
  string(TOUPPER ${component} part)
  set(CPACK_DEBIAN_${part}_PACKAGE_NAME ${name})
  set(CPACK_COMPONENT_${part}_DESCRIPTION "communication stack of distributed deep learning: ${about}\n \
 gradwire moves the gradients of a network that is trained on several machines.")
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name} RENAME copyright COMPONENT ${component}
    EXCLUDE_FROM_ALL)
endmacro()

gw_package(library libgradwire1 "library")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_GENERATE_SHLIBS ON) # and has ldconfig run
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SUGGESTS "libfabric1, liblapacke")

gw_package(devel libgradwire-dev "headers")
set(CPACK_DEBIAN_DEVEL_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVEL_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_DEVEL_PACKAGE_DEPENDS "libgradwire1 ${same}, libssl-dev")

# The program has the library in it.
gw_package(program gradwire "program")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS "openssh-client")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS "libfabric1, liblapacke, dataset-fashion-mnist")

gw_package(python python3-gradwire "PyTorch binding")
set(CPACK_DEBIAN_PYTHON_PACKAGE_SECTION python)
set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS "python3, libgradwire1 ${same}")
set(CPACK_DEBIAN_PYTHON_PACKAGE_RECOMMENDS "python3-torch, gradwire")

foreach(module ${GW_TRANSPORT_MODULES})
  string(REGEX REPLACE "^gradwire_mpi_" "" mpi ${module})
  gw_package(${module} libgradwire1-mpi-${mpi} "transport=mpi under ${mpi}")
endforeach()
include(CPack)
