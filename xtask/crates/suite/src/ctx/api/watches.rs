//! Watches in the case's namespace.

use model::Resource;

use super::CaseApi;
use crate::api::{Request, Response, Transport, overload};
use crate::error::CheckError;
use crate::watch::{self, Watch, WatchOptions};

impl CaseApi {
    /// A watch of the resource in the case's namespace; a refusal fails the check.
    pub async fn watch(&self, resource: &Resource, options: &WatchOptions) -> Result<Watch, CheckError> {
        self.watch_over(self.transport(), resource, options).await
    }

    /// Like [`CaseApi::watch`], over the given transport.
    pub async fn watch_over(
        &self,
        transport: Transport,
        resource: &Resource,
        options: &WatchOptions,
    ) -> Result<Watch, CheckError> {
        let refused = |refusal| CheckError::failed(format!("watch with `{}` was refused: {refusal}", options.query()));
        self.try_watch(transport, resource, options).await?.map_err(refused)
    }

    pub async fn try_watch(
        &self,
        transport: Transport,
        resource: &Resource,
        options: &WatchOptions,
    ) -> Result<Result<Watch, Response>, CheckError> {
        let namespace = self.namespace_of(resource).await?;
        let prefix = resource.key_prefix(&self.0.profile().prefix, Some(&namespace));
        let path = resource.path(Some(&namespace));
        let etcd_prefix = self.0.profile().prefix.clone();
        let target = watch::Target { resource: resource.clone(), etcd_prefix };
        let (api, recorder) = (self.client_over(transport)?, self.0.recorder(resource));
        let mut retry_budget = self.retry_budget();
        loop {
            let open = watch::open(api, recorder, &self.0.client, &path, &prefix, target.clone(), options);
            let Ok(answer) = tokio::time::timeout(self.0.answer_limit(), open).await else {
                let what = format!("the response head of a watch with `{}`", options.query());
                return Err(CheckError::TimedOut { what });
            };
            let refusal = match answer? {
                Ok(watch) => return Ok(Ok(watch)),
                Err(refusal) => refusal,
            };
            if !retry_budget.waits_for_retry(&refusal).await {
                self.skip_if_forbidden(&refusal)?;
                let request = Request::get(path).query(options.query());
                return Ok(Err(overload::refuse_late(&request, recorder.newest_revision(), refusal)?));
            }
            self.0.count("repeated requests", 1);
        }
    }
}
