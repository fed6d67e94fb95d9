//! TLS: certificates of clients, names that are admitted, renewal without a restart.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use helio_state_etcd::{TlsError, TlsFiles, listen};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::support::authority::Authority;
use crate::support::serve;

fn files(authority: &Authority, allowed_names: &[&str]) -> TlsFiles {
    TlsFiles {
        certificate: authority.path("server.crt"),
        key: authority.path("server.key"),
        client_authorities: Some(authority.path("ca.crt")),
        allowed_names: allowed_names.iter().map(|name| (*name).to_owned()).collect(),
    }
}

/// The status line of `/health` for a client with a certificate, and the server's certificate.
fn get_from(
    authority: &Authority,
    address: SocketAddr,
    client: Option<&str>,
) -> Option<(String, Vec<u8>)> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority.path("ca.crt")).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match client {
        None => builder.with_no_client_auth(),
        Some(name) => {
            let crt =
                CertificateDer::from_pem_file(authority.path(&format!("{name}.crt"))).unwrap();
            let key = PrivateKeyDer::from_pem_file(authority.path(&format!("{name}.key"))).unwrap();
            builder.with_client_auth_cert(vec![crt], key).unwrap()
        }
    };
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(connection, TcpStream::connect(address).unwrap());
    let request = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    std::io::Write::write_all(&mut stream, request.as_bytes()).ok()?;
    let mut answer = [0; 15];
    std::io::Read::read_exact(&mut stream, &mut answer).ok()?;
    let certificate = stream.conn.peer_certificates()?.first()?.to_vec();
    Some((String::from_utf8_lossy(&answer).into_owned(), certificate))
}

const SERVER: &str = "subjectAltName=DNS:localhost\n";

fn status(answer: Option<(String, Vec<u8>)>) -> Option<String> {
    answer.map(|(status, _)| status)
}

#[test]
fn only_named_clients_of_the_authority_are_admitted() {
    let (ours, foreign) = (Authority::new(), Authority::new());
    ours.vouch("server", SERVER);
    ours.vouch("apiserver", "extendedKeyUsage=clientAuth\n");
    ours.vouch("other", "extendedKeyUsage=clientAuth\n");
    ours.vouch("named", "subjectAltName=critical,DNS:telescope-1\n");
    foreign.vouch("apiserver", "extendedKeyUsage=clientAuth\n");
    for part in ["crt", "key"] {
        let from = foreign.path(&format!("apiserver.{part}"));
        fs::copy(from, ours.path(&format!("foreign.{part}"))).unwrap();
    }
    let server = serve(Some(files(&ours, &["apiserver", "telescope-1"])));
    let get = |client| status(get_from(&ours, server.address(), client));
    assert_eq!(get(Some("apiserver")).as_deref(), Some("HTTP/1.1 200 OK"));
    assert_eq!(get(Some("named")).as_deref(), Some("HTTP/1.1 200 OK"));
    assert_eq!(get(Some("other")), None);
    assert_eq!(get(Some("foreign")), None);
    assert_eq!(get(None), None);
}

#[test]
fn a_renewed_certificate_is_used_without_a_restart_and_a_broken_one_is_not() {
    let authority = Authority::new();
    authority.vouch("server", SERVER);
    let files = TlsFiles { client_authorities: None, ..files(&authority, &[]) };
    let server = serve(Some(files.clone()));
    let get = || get_from(&authority, server.address(), None).unwrap().1;
    let first = get();
    authority.vouch("server", SERVER);
    let second = get();
    assert_ne!(first, second);
    fs::write(authority.path("server.crt"), "not yet whole").unwrap();
    assert_eq!(get(), second);
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let authority = Authority::new();
    authority.vouch("server", SERVER);
    authority.vouch("other", SERVER);
    let refused = |files: TlsFiles| match listen("127.0.0.1:0", Some(files)) {
        Ok(_) => panic!("admitted"),
        Err(error) => error.to_string(),
    };
    let files = |change: fn(&mut TlsFiles, &Path)| {
        let mut files = files(&authority, &[]);
        change(&mut files, &authority.path(""));
        files
    };
    let told = refused(files(|files, folder| files.key = folder.join("none.key")));
    assert!(told.starts_with("cannot read") && told.contains("none.key"), "{told}");
    let told = refused(files(|files, folder| files.certificate = folder.join("server.key")));
    assert!(told.contains("server.key is no PEM file with a certificate"), "{told}");
    let told = refused(files(|files, folder| files.key = folder.join("other.key")));
    assert!(told.contains("server.crt cannot be used"), "{told}");
    let told = refused(files(|files, _| {
        (files.client_authorities, files.allowed_names) = (None, vec!["x".into()]);
    }));
    assert_eq!(told, TlsError::NamesWithoutAuthorities.to_string());
}
